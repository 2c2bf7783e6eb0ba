#!/usr/bin/env bash
# Tests the wheels of dist/ as a stranger has them: no compiler, no build tree, nothing of this
# folder but the tests.
#   scripts/wheel_test.sh
#     each in a fresh virtual environment with NumPy alone; one also with PyTorch
#   scripts/wheel_test.sh --here [WHEEL [ARGUMENT...]]
#     with the interpreter as it is, without a network: onto a machine with a GPU, take this folder
#     and dist/ along. The arguments are pytest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chore=wheel-test
python="${PYTHON:-python3}"
source scripts/venv.sh
work=build/wheel_test
tests=(python/tests/test_{package,rows,arrays,arguments,threads}.py)
torch_tests=(python/tests/test_torch{,_operators,_attention}.py)
has() { "$1" -c "import $2" 2>/dev/null; }

if [[ "${1-}" == --here ]]; then
  version="$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')"
  tag="cp$version-cp$version"
  ((version < 312)) || tag=cp312-abi3
  shopt -s nullglob
  fitting=(dist/onepass-*-"$tag"-*"$(uname -m)".whl)
  wheel="${2:-${fitting[0]-dist/onepass-*-$tag-*.whl}}"
  [[ -f $wheel ]] ||
    fail "there is no $wheel for this Python ${version:0:1}.${version:1}: run 'make wheel' first"
  here=$work/here
  rm -rf "$here"
  "$python" -m pip --quiet install --no-index --no-deps --no-compile --target "$here" "$wheel" ||
    fail "pip cannot install $wheel"
  export PYTHONPATH="$PWD/$here"
  has "$python" numpy ||
    fail "$("$python" --version) has no NumPy here: install it, or name another PYTHON=…"
  "$python" scripts/wheel_check.py
  if ! has "$python" pytest || ! has "$python" hypothesis; then
    echo "wheel-test: $wheel works; no test was run: this Python has no pytest, or no hypothesis"
    exit 0
  fi
  shift $(($# < 2 ? $# : 2))
  if has "$python" torch; then tests+=("${torch_tests[@]}"); fi
  exec "$python" -m pytest -p no:cacheprovider "${tests[@]}" "$@"
fi

compgen -G 'dist/onepass-*.whl' >/dev/null ||
  fail "there is no wheel in dist: run 'make wheel' first"
has_uv || fail "uv cannot be had: a network is needed the first time (and python3-venv on Debian)"
packages=(numpy ml_dtypes pytest hypothesis)

# stranger NAME INTERPRETER WHEEL [PACKAGE...]
stranger() {
  local venv=$work/$1 interpreter=$2 wheel=$3
  shift 3
  echo "wheel-test: $wheel, $("$interpreter" --version), ${*:-NumPy alone}"
  uv venv --clear --python "$interpreter" "$venv" ||
    fail "$interpreter cannot make a virtual environment in $venv"
  install "$venv" "$wheel" "${packages[@]}" "$@" ||
    fail "the packages of the tests cannot be had: a network is needed the first time"
  local run=("${tests[@]}")
  # torch.compile calls a compiler.
  [[ " $* " != *" torch "* ]] || run+=("${torch_tests[@]}" -k 'not compile')
  env PATH="$PWD/$venv/bin" "$venv/bin/python" scripts/wheel_check.py ||
    fail "$wheel does not do what it must: see above"
  env PATH="$PWD/$venv/bin" "$venv/bin/python" -m pytest -q -r fE -p no:cacheprovider "${run[@]}"
}

for wheel in dist/onepass-*.whl; do
  case "$wheel" in
    *-cp312-abi3-*) versions=(3.14 3.13 3.12) ;;
    *-cp311-*) versions=(3.11) ;;
    *) versions=(3.10) ;;
  esac
  found=()
  for version in "${versions[@]}"; do
    if path="$(interpreter "$version")"; then found+=("$path"); fi
  done
  if ((!${#found[@]})); then
    echo "wheel-test: $wheel is not tested: no Python ${versions[*]} here"
    continue
  fi
  stranger "numpy" "${found[0]}" "$wheel"
  if [[ $wheel == *-abi3-* && "${TORCH:-1}" != 0 ]]; then
    stranger "torch" "${found[-1]}" "$wheel" torch
  fi
done
