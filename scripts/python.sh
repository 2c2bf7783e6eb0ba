#!/usr/bin/env bash
# The Python package in a virtual environment of its own, build/python/venv.
#   scripts/python.sh check                 ruff and mypy on the Python files
#   scripts/python.sh install               builds and installs it
#   scripts/python.sh test [--if-possible]  and what its tests need; then pytest, with all further arguments.
#     --if-possible: where Python's headers or packages cannot be had, one line says so, and all is well.
# PYTHON: the interpreter (python3). TORCH=1: PyTorch even where its wheel brings CUDA along, TORCH=0: never.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chore="${1-}"
[[ "$chore" =~ ^(check|install|test)$ ]] || { sed -n '2,7p' "$0" >&2; exit 2; }
shift
if_possible=false
if [[ "${1-}" == --if-possible ]]; then if_possible=true; shift; fi

give_up() {
  if $if_possible; then
    echo "python: SKIPPED, no test of the Python package was run: $1"
    exit 0
  fi
  echo "python: $1" >&2
  exit 1
}

python="${PYTHON:-python3}"
venv=build/python/venv
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || give_up "$python is older than 3.10"
headers="$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
[[ -e "$headers/Python.h" ]] || give_up "Python's headers are missing: no Python.h in $headers"
if [[ ! -x $venv/bin/pip ]]; then
  "$python" -m venv --clear "$venv" || give_up "$python cannot make a virtual environment"
fi
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }

if [[ "$chore" == check ]]; then
  pip install ruff mypy
  "$venv/bin/ruff" check python examples
  "$venv/bin/ruff" format --check python examples
  exec "$venv/bin/mypy"
fi

pip install 'scikit-build-core>=0.10' 'nanobind>=2.2' || give_up "the packages to build with cannot be had"
# Without a GPU, minutes of nvcc would bring nothing that could be run.
settings=(-C build-dir=build/python/tree)
compgen -G '/dev/nvidia[0-9]*' >/dev/null || settings+=(-C cmake.define.ONEPASS_CUDA="${ONEPASS_CUDA:-OFF}")
CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-2}" pip install --no-build-isolation --force-reinstall --no-deps \
  "${settings[@]}" .
"$venv/bin/python" -c 'import onepass; print("python: onepass", onepass.__version__, "in", "'"$venv"'")'
[[ "$chore" == test ]] || exit 0

pip install -r python/tests/requirements.txt || give_up "the packages of the tests cannot be had"
default=0
[[ "$(uname -m)" == aarch64 ]] && default=1
if [[ "${TORCH:-$default}" == 1 ]]; then
  pip install -r python/tests/requirements-torch.txt || echo "python: PyTorch cannot be had, its tests are skipped"
else
  echo "python: PyTorch's tests are skipped: its wheel for $(uname -m) is several GB; TORCH=1 installs it"
fi
exec "$venv/bin/python" -m pytest "$@"
