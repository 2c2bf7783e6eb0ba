#!/usr/bin/env bash
# The Python package in a virtual environment of its own, build/python/venv.
#   scripts/python.sh install  builds and installs it
#   scripts/python.sh test [--if-possible]
#     and what its tests need; then pytest, with all further arguments. --if-possible: where
#     Python's headers or packages cannot be had, one line says so, and all is well.
#   scripts/python.sh fetch    the packages that test will ask for, while something else is built.
#                              Says nothing and never fails: test tells what cannot be had.
# PYTHON: the interpreter (python3). TREE: the build tree whose library goes in (build/release).
# TORCH=0: no PyTorch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

task="${1-}"
[[ "$task" =~ ^(install|test|fetch)$ ]] || { sed -n '2,10p' "$0" >&2; exit 2; }
shift
if_possible=false
if [[ "${1-}" == --if-possible ]]; then if_possible=true; shift; fi

chore=python
python="${PYTHON:-python3}"
tree="${TREE:-build/release}"
venv=build/python/venv
[[ "$task" != fetch ]] || exec >/dev/null 2>&1
source scripts/venv.sh

has_uv ||
  give_up "uv cannot be had: a network is needed the first time (and python3-venv on Debian)"
has_venv "$venv" || fail "$python cannot make a virtual environment in $venv"

install_build_packages() { install "$venv" 'scikit-build-core>=0.11' 'nanobind>=2.2'; }
install_test_packages() { install "$venv" -r python/tests/requirements.txt; }
install_suites() { install "$venv" -r python/tests/requirements-suites.txt; }
has_torch() { compgen -G "$venv/lib/*/site-packages/torch" >/dev/null; }
has_room_for_torch() { has_torch || (($(free_mb) >= 12000)); }
install_torch() { install "$venv" -r python/tests/requirements-torch.txt; }

if [[ "$task" == fetch ]]; then
  scripts/check.sh python || true
  install_build_packages && install_test_packages || exit 0
  install_suites || true
  [[ "${TORCH:-1}" == 0 ]] || ! has_room_for_torch || install_torch || true
  exit 0
fi

headers="$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
[[ -e "$headers/Python.h" ]] ||
  give_up "Python's headers are missing (python3-dev on Debian): no Python.h in $headers"
[[ -e $tree/build.ninja ]] ||
  fail "$tree is not configured: run 'make build' first, or 'make python'"
install_build_packages ||
  give_up "the packages to build with cannot be had: a network is needed the first time"

# The library is that of the tree, which the C++ tests and the program have, too.
cmake --build "$tree" --parallel "${JOBS:-2}" --target onepass
CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-2}" install "$venv" --no-build-isolation --no-deps --reinstall \
  -C build-dir=build/python/tree -C cmake.define.ONEPASS_USE_TREE="$PWD/$tree" . ||
    fail "the extension was not built"
"$venv/bin/python" -c 'import onepass; print("python: onepass", onepass.__version__, end=" ")'
echo "in $venv"
[[ "$task" == test ]] || exit 0

install_test_packages ||
  give_up "the packages of the tests cannot be had: a network is needed the first time"
install_suites ||
  echo "python: ONNX's tests are skipped: its package cannot be had," \
    "a network is needed the first time"
if [[ "${TORCH:-1}" == 0 ]]; then
  echo "python: PyTorch's tests are skipped, as TORCH=0 says"
elif ! has_room_for_torch; then
  echo "python: PyTorch's tests are skipped: with uv's cache it takes up to 12 GB, of which" \
    "$(free_mb) MB are free"
elif ! install_torch; then
  echo "python: PyTorch's tests are skipped: its packages cannot be had," \
    "a network is needed the first time"
fi
# All of them run side by side: a thread that waits by spinning would take the core of another test.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
(($#)) || set -- -n "${JOBS:-2}" --dist worksteal
exec "$venv/bin/python" -m pytest "$@"
