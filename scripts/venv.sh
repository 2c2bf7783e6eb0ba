# shellcheck shell=bash
# Sourced by the scripts for the Python package: virtual environments, and what is installed there.
# Uses $python, the interpreter, and $chore, the name that messages begin with. Packages are
# installed by uv, which takes seconds where pip takes minutes; uv itself comes from pip, into
# build/python/tools.

tools=build/python/tools
uv() { "$tools/bin/uv" --quiet --no-progress "$@"; }

free_mb() { df -Pk . | awk 'NR == 2 { print int($4 / 1024) }'; }

# fail WHAT: ends with one line, which tells of a full disk where that is the reason.
fail() {
  if (($(free_mb) < 100)); then
    echo "$chore: the disk is full, $(free_mb) MB are left: make room, then run this again ($1)" >&2
  else
    echo "$chore: $1" >&2
  fi
  exit 1
}

# give_up WHAT: for what the machine does not have. Where the task was to be done only if possible,
# that is no failure.
give_up() {
  if ! ${if_possible:-false} || (($(free_mb) < 100)); then fail "$1"; fi
  echo "$chore: SKIPPED, ${skipped:-no test of the Python package was run}: $1"
  exit 0
}

# has_uv: whether uv is there, now.
has_uv() {
  [[ -x $tools/bin/uv ]] || {
    "$python" -m venv --clear "$tools" &&
      "$tools/bin/python" -m pip --quiet --disable-pip-version-check install --retries 2 'uv>=0.5'
  } || return 1
  # uv has settings of its own; where packages come from was perhaps told to pip alone.
  local index
  index="${PIP_INDEX_URL-}"
  [[ -n $index ]] ||
    index="$("$tools/bin/python" -m pip config get global.index-url 2>/dev/null || true)"
  [[ -z $index ]] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
  [[ -z ${PIP_CERT-} ]] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
}

# has_venv DIR: whether there is a virtual environment of $python, now. One of another
# interpreter is replaced.
has_venv() {
  local same='import sys; print(sys.version, sys.base_prefix)'
  [[ "$("$1/bin/python" -c "$same" 2>/dev/null)" == "$("$python" -c "$same")" ]] ||
    uv venv --clear --python "$python" "$1"
}

# install DIR PACKAGE...: into that environment. Quick, and without the network, where all
# are there already.
install() {
  local venv=$1
  shift
  uv pip install --python "$venv/bin/python" "$@"
}

# interpreter VERSION: prints a Python of that version, with the headers that an
# extension is built with.
interpreter() {
  local candidate
  for candidate in "$python" "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    "$candidate" - "$1" 2>/dev/null <<'PYTHON' && return
import os, sys, sysconfig
headers = os.path.join(sysconfig.get_path("include"), "Python.h")
if "%d.%d" % sys.version_info[:2] != sys.argv[1] or not os.path.exists(headers):
    sys.exit(1)
print(sys.executable)
PYTHON
  done
  return 1
}

# Checks that every chore begins with.
[[ -n "$(command -v "$python")" ]] ||
  give_up "no interpreter '$python': install Python 3.10 or later, or name one: PYTHON=…"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  give_up "$("$python" --version) is too old: 3.10 or later is needed, PYTHON=… names another"
mkdir -p build/python 2>/dev/null && [[ -w build/python ]] ||
  fail "build/python cannot be written: make this folder writable, or copy it to one that is"
