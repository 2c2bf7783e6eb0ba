// attention/01_fused_softmax: scale, softmax and rounding in one kernel.
//
// Idea    what a row of scores goes through needs nothing but the row: a block reads it, finds its state, reads it
//         again (from a cache) and writes the weights in 16 bits. A causal mask is a shorter row.
// Versus  00_naive: five launches in place of seven. The logits and the probabilities in f32 are gone from memory.
// Bytes   for each pair of a query and a key 12 in place of 28: a score written and read, a weight written and read.
// Limits  as 00_naive.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "ops/attention/walk/matrices.cuh"
#include "ops/attention/walk/variants.hpp"

namespace onepass::ops::attention {
namespace {

template <class Stored>
__global__ __launch_bounds__(geometry::kWideThreads) void fused_softmax_kernel(
    const __grid_constant__ AttentionArgs a, const __grid_constant__ Matrices m) {
  __shared__ BlockMerge::Scratch of_warp;
  const QueryRow<Stored> row(a, m);
  State<float> mine = identity<float>();
  for_each(row.end, [&](int key) { mine = merge(mine, leaf(row.logit(row.scores[key]))); });
  const State<float> state = BlockMerge(of_warp).all(mine);
  for_each(row.filled, [&](int key) {
    const float w = key < row.end ? weight(state, row.logit(row.scores[key])) : 0.F;
    row.weights[key] = narrow<Stored>(w);
  });
  if (threadIdx.x == 0) row.write_lse(state);
}

template <class Stored>
Status attend_fused_softmax(const AttentionArgs& a, const WalkLaunch& how) {
  return attend_in_memory<Stored>(a, how, [&](const Matrices& m) {
    return launch_rows(fused_softmax_kernel<Stored>, a, how, m);
  });
}

}  // namespace

Status fused_softmax(const AttentionArgs& args, const WalkLaunch& how) {
  return args.q.dtype == DType::bf16 ? attend_fused_softmax<BF16>(args, how)
                                     : attend_fused_softmax<F16>(args, how);
}

}  // namespace onepass::ops::attention
