// attention/01_fused_softmax: scale, softmax and rounding in one kernel.
//
// Idea    what a row of scores goes through needs nothing but the row: a block reads it, finds
//         its state, reads it again (from a cache) and writes the weights in 16 bits. A causal
//         mask is a shorter row.
// Versus  00_naive: five launches in place of seven. The logits and the probabilities in f32 are
//         gone from memory.
// Bytes   for each pair of a query and a key 12 in place of 28: a score written and read, a weight
//         written and read.
// Limits  as 00_naive.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "ops/attention/walk/matrices.cuh"

namespace onepass::ops::attention {
namespace {

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    fused_softmax_kernel(const __grid_constant__ Attention<T> a,
                         const __grid_constant__ Matrices<T> m) {
  __shared__ BlockMerge::Scratch of_warp;
  const QueryRow<T> row(a, m);
  State<float> mine = identity<float>();
  for_each(row.end, [&](int key) { mine = merge(mine, leaf(row.logit(row.scores[key]))); });
  const State<float> state = BlockMerge(of_warp).all(mine);
  for_each(row.filled, [&](int key) {
    const float w = key < row.end ? weight(state, row.logit(row.scores[key])) : 0.F;
    row.weights[key] = narrow<T>(w);
  });
}

}  // namespace

Status fused_softmax(const Call& call, const WalkLaunch& how) {
  const auto attend = [&]<class T>(const Attention<T>& a) {
    return attend_in_memory(a, call, how, fused_softmax_kernel<T>);
  };
  return std::visit(attend, call.attention);
}

}  // namespace onepass::ops::attention
