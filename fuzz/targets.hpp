// The targets, one a function.
#pragma once

#include "fuzz/bytes.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {

void fuzz_api(Input input);
// Parts of `api`: merge_attention and its backward.
void fuzz_merge(Bytes& bytes);
void fuzz_merge_backward(Bytes& bytes);

void fuzz_npy(Input input);
void fuzz_problem(Input input);
void fuzz_workload(Input input);
void fuzz_tuning(Input input);
void fuzz_results(Input input);
void fuzz_ncu(Input input);

}  // namespace onepass::fuzz
