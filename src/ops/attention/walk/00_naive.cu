// attention/00_naive: the formula, a launch per operation.
//
// Idea    what one writes with a product of matrices at hand. Seven launches: kᵀ, q · kᵀ, times the
//         scale (and −inf over what a causal mask hides), softmax, round to 16 bits, weights · v,
//         round to o's dtype. Each reads what the one before wrote.
// Versus  nothing: this is where the walk begins.
// Bytes   a score is 4 bytes and is written three times and read three times, then 2 bytes once
//         each: 28 bytes for each pair of a query and a key, where q, k, v and o are 8 · dim for
//         each query. The softmax's second look at a row comes from a cache.
// Limits  sm_80; f16, bf16; dims in multiples of 16 up to 256; tokens at multiples of 16 bytes;
//         scale, causal, grouped heads; up to 8 GiB of workspace.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "ops/attention/walk/matrices.cuh"

namespace onepass::ops::attention {
namespace {

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    scale_scores(const __grid_constant__ Attention<T> a, const __grid_constant__ Matrices<T> m) {
  const QueryRow<T> row(a, m);
  for_each(row.keys, [&](int key) {
    float& z = row.scores[key];
    z = key < row.end ? row.logit(z) : minus_infinity<float>();
  });
}

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    softmax(const __grid_constant__ Attention<T> a, const __grid_constant__ Matrices<T> m) {
  __shared__ BlockMerge::Scratch of_warp;
  const QueryRow<T> row(a, m);
  State<float> mine = identity<float>();
  for_each(row.keys, [&](int key) { mine = merge(mine, leaf(row.scores[key])); });
  const State<float> state = BlockMerge(of_warp).all(mine);
  for_each(row.keys, [&](int key) { row.scores[key] = weight(state, row.scores[key]); });
}

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    convert_weights(const __grid_constant__ Attention<T> a, const __grid_constant__ Matrices<T> m) {
  const QueryRow<T> row(a, m);
  for_each(row.filled,
           [&](int key) { row.weights[key] = narrow<T>(key < row.keys ? row.scores[key] : 0.F); });
}

}  // namespace

Status naive(const Call& call, const WalkLaunch& how) {
  const auto attend = [&]<class T>(const Attention<T>& a) {
    return attend_in_memory(a, call, how, scale_scores<T>, softmax<T>, convert_weights<T>);
  };
  return std::visit(attend, call.attention);
}

}  // namespace onepass::ops::attention
