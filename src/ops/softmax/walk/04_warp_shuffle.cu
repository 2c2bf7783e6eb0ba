// softmax/04_warp_shuffle: warps fold in registers and meet once.
//
// Idea    five shuffles, one trip through shared memory, five shuffles: two barriers a fold in
//         place of one for each level of the tree.
// Versus  03_vec4: the fold. Nothing else changes.
// Bytes   as 03_vec4.
// Limits  rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/block.cuh"
#include "ops/softmax/walk/three_pass.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void warp_shuffle_kernel(Rows<T> a) {
  __shared__ float of_warp[32];
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    three_passes(packed(a, row), [](float mine, auto join) {
      return BlockFold<decltype(join)>(of_warp).all(mine);
    });
  }
}

}  // namespace

Status warp_shuffle(const Call& call, const WalkLaunch& how) {
  return with_rows(
      call, [&]<class T>(Rows<T> rows) { return launch(warp_shuffle_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::softmax
