#!/usr/bin/env bash
# Installs the Debian packages that the build needs and that are missing. Instant when all are
# there.
#   scripts/setup.sh          to build, test and measure
#   scripts/setup.sh --lint   clang-tidy
#   scripts/setup.sh --fuzz   clang, its libFuzzer and sanitizers, llvm-cov
set -euo pipefail

packages=(
  g++ make cmake ninja-build pkg-config git python3     # to build
  libhwy-dev                                            # SIMD with run-time dispatch
  libfmt-dev libcli11-dev nlohmann-json3-dev            # the program
  libdnnl-dev                                           # oneDNN, the peer that we measure against
  libgtest-dev librapidcheck-dev                        # the tests
  python3-dev python3-venv                              # the Python package
)
programs=(c++ make cmake ninja python3)
case "${1-}" in
  '') ;;
  # libomp-dev: clang reads the sources with its own omp.h, not with that of g++.
  --lint) packages=(clang-tidy libomp-dev) programs=(run-clang-tidy) ;;
  --fuzz)
    packages=(clang llvm libclang-rt-dev libomp-dev)
    programs=(clang++ llvm-cov llvm-profdata) ;;
  *) echo "setup: unknown argument '$1' (nothing, --lint or --fuzz)" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  absent=()
  for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || absent+=("$program")
  done
  echo "setup: not a Debian system; needed, under Debian's names: ${packages[*]}" >&2
  if ((${#absent[@]})); then
    echo "setup: not found: ${absent[*]}" >&2
    exit 1
  fi
  exit 0
fi

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}
missing=()
# One question for all is instant; only when the answer is not "all of them" is each asked for.
status="$(dpkg-query -W -f='${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || echo missing)"
if [[ -n "$(grep -vx installed <<<"$status")" ]]; then
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
fi
((${#missing[@]})) || exit 0

by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: missing packages: ${missing[*]}" >&2
    echo "setup: neither root nor sudo here; as root, run: $by_hand" >&2
    exit 1
  fi
  as_root=(sudo)
  [[ -t 0 ]] || as_root+=(-n)  # nobody there to type a password
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"
}
install_missing() {
  apt install --no-install-recommends "${missing[@]}"
}

echo "setup: installing ${missing[*]}"
# The package lists are fetched only when they are absent, or too old to install from.
if ! apt-cache show --no-all-versions "${missing[@]}" >/dev/null 2>&1 || ! install_missing; then
  echo "setup: fetching the package lists"
  if ! apt update || ! install_missing; then
    echo "setup: could not install; missing packages: ${missing[*]}" >&2
    echo "setup: with a network and as root, run: $by_hand" >&2
    exit 1
  fi
fi
