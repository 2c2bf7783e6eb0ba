#!/usr/bin/env bash
# Runs the inputs that fuzzing kept, and those it began with, in the tree `fuzz-coverage`, and
# prints how many lines of the readers they reach. With --all: of the whole library.
set -euo pipefail

program=build/fuzz-coverage/fuzz/onepass_fuzz
profiles=build/fuzz-coverage/profiles
readers=(cli/files/npy.cpp cli/problem src/rows/gpu/tuning.cpp cli/measure/results.cpp
  cli/measure/json.cpp cli/profile/ncu.cpp)
if [[ "${1-}" == --all ]]; then readers=(src cli); fi

rm -rf "$profiles"
mkdir -p "$profiles"
export OMP_WAIT_POLICY=passive
for target in api npy problem workload tuning results ncu; do
  "$program" seeds "$target" "$profiles/seeds/$target"
  find "$profiles/seeds/$target" "build/fuzz/corpus/$target" -type f -print0 2>/dev/null |
    LLVM_PROFILE_FILE="$profiles/$target-%p.profraw" xargs -0 -r -n 500 \
      "$program" reproduce "$target" >/dev/null
  LLVM_PROFILE_FILE="$profiles/$target-drawn.profraw" \
    "$program" run --target "$target" --calls 20000
done
llvm-profdata merge -sparse "$profiles"/*.profraw -o "$profiles/all.profdata"
llvm-cov report "$program" -instr-profile "$profiles/all.profdata" "${readers[@]}"
