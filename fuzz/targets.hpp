// The targets, one a function.
#pragma once

#include "fuzz/bytes.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {

void fuzz_api(Input input);
void fuzz_merge(Bytes& bytes);  // merge_attention, a part of `api`

void fuzz_npy(Input input);
void fuzz_problem(Input input);
void fuzz_workload(Input input);
void fuzz_tuning(Input input);
void fuzz_results(Input input);
void fuzz_ncu(Input input);

}  // namespace onepass::fuzz
