// attention/00_naive: the formula, a launch an operation.
//
// Idea    what one writes with a product of matrices at hand. Seven launches: kᵀ, q · kᵀ, times the scale (and −inf
//         over what a causal mask hides), softmax, round to 16 bits, weights · v, round to o's dtype. Each reads
//         what the one before wrote.
// Versus  nothing: this is where the walk begins.
// Bytes   a score is 4 bytes and is written three times and read three times, then 2 bytes once each: 28 bytes for
//         each pair of a query and a key, where q, k, v and o are 8 · dim for each query. The softmax's second
//         look at a row comes from a cache.
// Limits  sm_80; f16, bf16; dims in multiples of 16 up to 256; tokens at multiples of 16 bytes; scale, causal, grouped
//         heads, lse; up to 8 GiB of workspace.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "ops/attention/walk/matrices.cuh"
#include "ops/attention/walk/variants.hpp"

namespace onepass::ops::attention {
namespace {

template <class Stored>
__global__ __launch_bounds__(geometry::kWideThreads) void scale_scores(
    const __grid_constant__ AttentionArgs a, const __grid_constant__ Matrices m) {
  const QueryRow<Stored> row(a, m);
  for_each(row.keys, [&](int key) {
    float& z = row.scores[key];
    z = key < row.end ? row.logit(z) : minus_infinity<float>();
  });
}

template <class Stored>
__global__ __launch_bounds__(geometry::kWideThreads) void softmax(
    const __grid_constant__ AttentionArgs a, const __grid_constant__ Matrices m) {
  __shared__ BlockMerge::Scratch of_warp;
  const QueryRow<Stored> row(a, m);
  State<float> mine = identity<float>();
  for_each(row.keys, [&](int key) { mine = merge(mine, leaf(row.scores[key])); });
  const State<float> state = BlockMerge(of_warp).all(mine);
  for_each(row.keys, [&](int key) { row.scores[key] = weight(state, row.scores[key]); });
  if (threadIdx.x == 0) row.write_lse(state);
}

template <class Stored>
__global__ __launch_bounds__(geometry::kWideThreads) void convert_weights(
    const __grid_constant__ AttentionArgs a, const __grid_constant__ Matrices m) {
  const QueryRow<Stored> row(a, m);
  for_each(row.filled, [&](int key) {
    row.weights[key] = narrow<Stored>(key < row.keys ? row.scores[key] : 0.F);
  });
}

template <class Stored>
Status attend_naive(const AttentionArgs& a, const WalkLaunch& how) {
  return attend_in_memory<Stored>(a, how, [&](const Matrices& m) {
    return in_order([&] { return launch_rows(scale_scores<Stored>, a, how, m); },
                    [&] { return launch_rows(softmax<Stored>, a, how, m); },
                    [&] { return launch_rows(convert_weights<Stored>, a, how, m); });
  });
}

}  // namespace

Status naive(const AttentionArgs& args, const WalkLaunch& how) {
  return args.q.dtype == DType::bf16 ? attend_naive<BF16>(args, how) : attend_naive<F16>(args, how);
}

}  // namespace onepass::ops::attention
