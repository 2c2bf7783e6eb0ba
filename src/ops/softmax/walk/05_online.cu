// softmax/05_online: maximum and sum in one pass.
//
// Idea    the merge itself, an element at a time: the sum so far shrinks whenever the maximum
//         grows. No branch, and a −inf is merged like any other element.
// Versus  04_warp_shuffle: one pass and one fold before the finish in place of two of each; paid
//         for with two exponentials an element, one for each side of the merge.
// Bytes   x twice, y once.
// Limits  rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/block.cuh"
#include "ops/softmax/walk/packs.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void online_kernel(Rows<T> a) {
  __shared__ BlockMerge::Scratch scratch;
  constexpr int kLanes = Pack<T>::kLanes;
  for (std::int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const PackedRow<T> row = packed(a, r);
    float v[kLanes];
    State<float> mine = identity<float>();
    for (std::int64_t i = threadIdx.x; i < row.packs(); i += blockDim.x) {
      widen({row.load(i)}, v);
      for (const float x : v) mine = merge(mine, leaf(x));
    }
    const State<float> all = BlockMerge(scratch).all(mine);
    const float s = shift(all.m);
    const float scale = factor(all, all.m);
    for (std::int64_t i = threadIdx.x; i < row.packs(); i += blockDim.x) {
      widen({row.load(i)}, v);
      for (float& each : v) each = exponential(each - s);
      row.store(i, v, scale);
    }
  }
}

}  // namespace

Status online(const Call& call, const WalkLaunch& how) {
  return with_rows(
      call, [&]<class T>(Rows<T> rows) { return launch(online_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::softmax
