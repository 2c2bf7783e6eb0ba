// attention/02_fused_tuned: the same kernel, made for the machine.
//
// Idea    256 threads per block, so that eight blocks share an SM and some of them load while
//         others fold. A thread has eight neighbouring scores: two loads of 16 bytes, one store of
//         16. It exponentiates them against their own maximum, once each, and merges the state of
//         all eight; a weight is one 2^x and one product.
// Versus  01_fused_softmax: the same bytes, fewer instructions, more of them at a time. The
//         products do not change.
// Bytes   as 01_fused_softmax.
// Limits  as 00_naive.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "core/cuda/number.cuh"
#include "merge/thread.cuh"
#include "ops/attention/walk/matrices.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kScores = 8;  // scores that a thread has at a time

// The i-th eight logits of a row, −inf from its end on.
template <class T>
__device__ inline void load_logits(const QueryRow<T>& row, int i, float (&z)[kScores]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 four = reinterpret_cast<const float4*>(row.scores)[2 * i + half];
    const float scores[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int key = kScores * i + 4 * half + j;
      z[4 * half + j] = key < row.end ? row.logit(scores[j]) : minus_infinity<float>();
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kTunedThreads)
    fused_tuned_kernel(const __grid_constant__ Attention<T> a,
                       const __grid_constant__ Matrices<T> m) {
  __shared__ BlockMerge::Scratch of_warp;
  const QueryRow<T> row(a, m);
  const int seen = (row.end + kScores - 1) / kScores;  // eights with a key that is seen
  State<float> mine = identity<float>();
  for_each(seen, [&](int i) {
    float z[kScores];
    load_logits(row, i, z);
    mine = merge(mine, fold_in_place(z));
  });
  const State<float> state = BlockMerge(of_warp).all(mine);

  const float from = shift(state.m);
  const float by = factor(state, state.m);
  for_each(row.filled / kScores, [&](int i) {
    unsigned words[kScores / 2] = {};
    if (i < seen) {
      float z[kScores];
      load_logits(row, i, z);
#pragma unroll
      for (float& x : z) x = exponential(x - from) * by;
      narrow_words<T>(z, words);
    }
    reinterpret_cast<uint4*>(row.weights)[i] = make_uint4(words[0], words[1], words[2], words[3]);
  });
}

}  // namespace

Status fused_tuned(const Call& call, const WalkLaunch& how) {
  const auto attend = [&]<class T>(const Attention<T>& a) {
    return attend_in_memory(a, call, how, fused_tuned_kernel<T>);
  };
  return std::visit(attend, call.attention);
}

}  // namespace onepass::ops::attention
