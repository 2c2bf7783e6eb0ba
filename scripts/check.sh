#!/usr/bin/env bash
# Checks the sources without running them, and changes nothing.
#   scripts/check.sh [--if-possible] [PART...]   the parts named, or all:
#     format    clang-format has nothing to lay out
#     layout    scripts/layout.py: 100 columns, 400 lines
#     includes  scripts/floors.py: no include leads up or sideways
#     python    ruff and mypy
#     tidy      clang-tidy on every .cpp file, which takes minutes; needs the tree build/tidy, which
#               `make check` configures: clang cannot read headers that GCC has precompiled
#   scripts/check.sh --write                     lays out C++ and Python
# --if-possible: a part whose tools cannot be had says so in one line, and has not failed.
# Tools but clang-tidy are those of scripts/requirements-check.txt, in build/python/check.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if_possible=false
write=false
parts=()
for argument; do
  case "$argument" in
    --if-possible) if_possible=true ;;
    --write) write=true ;;
    format | layout | includes | python | tidy) parts+=("$argument") ;;
    *) sed -n '2,13p' "$0" >&2; exit 2 ;;
  esac
done
((${#parts[@]})) || parts=(format layout includes python tidy)

chore=check
python="${PYTHON:-python3}"
venv=build/python/check
python_files=(python examples scripts tests/scripts)
skipped="nothing was checked"
source scripts/venv.sh

# A part that gives up is neither in order nor failed.
given_up_status=77
give_up() {
  $if_possible || fail "$1"
  echo "check: SKIPPED, $skipped: $1"
  exit $given_up_status
}

cxx_files() {
  find include src oracle cli tests fuzz examples python/src \
    \( -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) -print0
}

# Several checks may begin at once, and one of them installs for all.
need_tools() {
  exec 9>build/python/check.lock
  flock 9
  has_uv && has_venv "$venv" && install "$venv" -r scripts/requirements-check.txt ||
    give_up "clang-format, ruff and mypy cannot be had: a network is needed the first time"
  exec 9>&-
}

check_format() {
  need_tools
  cxx_files | xargs -0 "$venv/bin/clang-format" --dry-run -Werror
}
check_layout() { "$python" scripts/layout.py; }
check_includes() { "$python" scripts/floors.py; }
check_python() {
  need_tools
  "$venv/bin/ruff" check --quiet "${python_files[@]}"
  "$venv/bin/ruff" format --check --quiet "${python_files[@]}"
  "$venv/bin/mypy"
}
check_tidy() {
  local tree=build/tidy
  [[ -n "$(command -v run-clang-tidy)" ]] || give_up "there is no run-clang-tidy: make setup-lint"
  [[ -e $tree/compile_commands.json ]] || fail "$tree is not configured: run 'make check'"
  run-clang-tidy -quiet -p "$tree" -j "${JOBS:-2}" -extra-arg=-Wno-unknown-warning-option '\.cpp$'
}

if $write; then
  need_tools
  cxx_files | xargs -0 "$venv/bin/clang-format" -i
  "$venv/bin/ruff" check --fix-only --quiet "${python_files[@]}"
  exec "$venv/bin/ruff" format "${python_files[@]}"
fi

failed=()
given_up=()
for part in "${parts[@]}"; do
  echo "check: $part"
  begun=$SECONDS
  # In a shell of its own, so that a part that fails or gives up does not end the others; not as a
  # condition, which would switch off -e within.
  set +e
  (set -e; "check_$part")
  status=$?
  set -e
  case $status in
    0) ;;
    "$given_up_status") given_up+=("$part") ;;
    *) failed+=("$part") ;;
  esac
  echo "check: $part took $((SECONDS - begun)) s"
done
((!${#given_up[@]})) || echo "check: not checked: ${given_up[*]}"
if ((${#failed[@]})); then
  echo "check: FAILED: ${failed[*]}"
  exit 1
fi
echo "check: $((${#parts[@]} - ${#given_up[@]})) of ${#parts[@]} parts are in order"
