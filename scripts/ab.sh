#!/usr/bin/env bash
# Two programs measured in turns, then compared:
#   BEFORE=path AFTER=path WORKLOAD=file [REPEATS=5] [OUT=folder] scripts/ab.sh [flags of bench]
# Each repeat is a process of either program, into OUT/before and OUT/after. Which of them goes
# first changes from repeat to repeat (before, after, after, before), so that a machine that grows
# slower favours neither. `onepass compare` then says what became faster and what slower, and its
# exit code is this script's. It is AFTER's, or COMPARE's, which may be a third and newer program.
set -euo pipefail

give_up() {
  echo "ab: $1" >&2
  exit 2
}

repeats="${REPEATS:-5}"
for name in BEFORE AFTER WORKLOAD; do
  [[ -n "${!name-}" ]] ||
    give_up "$name is missing, as in BEFORE=old/onepass AFTER=new/onepass WORKLOAD=file"
done
compare="${COMPARE:-$AFTER}"
for name in BEFORE AFTER compare; do
  [[ -f "${!name}" && -x "${!name}" ]] || give_up "$name: no program at ${!name}"
done
[[ -r "$WORKLOAD" ]] || give_up "WORKLOAD: cannot read $WORKLOAD"
[[ "$repeats" =~ ^[1-9][0-9]?$ ]] || give_up "REPEATS: $repeats, expected a number from 1 to 99"
out="${OUT:-build/ab/$(date +%Y%m%d-%H%M%S)}"
mkdir -p "$out/before" "$out/after" 2>/dev/null || give_up "OUT: cannot make $out"
# Files of an earlier run would be taken for repeats of this one.
for old in "$out"/{before,after}/*.json; do
  [[ ! -e "$old" ]] || give_up "OUT: $old is there already"
done

errors="$(mktemp)"
trap 'rm -f "$errors"' EXIT

measure() {  # side, program, repeat, flags of bench
  local side="$1" program="$2" repeat="$3"
  shift 3
  echo "ab: repeat $repeat of $repeats, $side" >&2
  OMP_PROC_BIND="${OMP_PROC_BIND:-true}" "$program" bench --workload "$WORKLOAD" \
    --variants auto "$@" \
    --json "$out/$side/$(printf %02d "$repeat").json" >/dev/null 2>"$errors" ||
    give_up "$side, repeat $repeat: bench ended with $?: $(tail -n 1 "$errors")"
}

for ((repeat = 1; repeat <= repeats; repeat++)); do
  if ((repeat % 2)); then
    measure before "$BEFORE" "$repeat" "$@"
    measure after "$AFTER" "$repeat" "$@"
  else
    measure after "$AFTER" "$repeat" "$@"
    measure before "$BEFORE" "$repeat" "$@"
  fi
done
echo "ab: results in $out" >&2
exec "$compare" compare "$out/before" "$out/after"
