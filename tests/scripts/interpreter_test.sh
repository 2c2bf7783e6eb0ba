#!/usr/bin/env bash
# What the scripts of the Python package say of an interpreter that will not do: one line, which
# tells what would.
#   interpreter_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1"\nexit 1\n' >"$work/old"
chmod +x "$work/old"

# expect STATUS TEXT COMMAND...
expect() {
  local status=0 said
  said="$("${@:3}" 2>&1)" || status=$?
  if [[ $status != "$1" || $said != *"$2"* || $said == *$'\n'* ]]; then
    printf 'status %s, said:\n%s\nexpected status %s and one line with: %s\n' \
      "$status" "$said" "$1" "$2" >&2
    exit 1
  fi
}

for script in python.sh\ install wheel.sh wheel_test.sh; do
  # shellcheck disable=SC2086  # a script and its argument
  expect 1 "Python 3.9.1 is too old: 3.10 or later is needed" env PYTHON="$work/old" scripts/$script
  # shellcheck disable=SC2086
  expect 1 "no interpreter '$work/none'" env PYTHON="$work/none" scripts/$script
done
expect 0 "SKIPPED, no test of the Python package was run" \
  env PYTHON="$work/none" scripts/python.sh test --if-possible
expect 1 "there is no $work/no.whl" scripts/wheel_test.sh --here "$work/no.whl"
