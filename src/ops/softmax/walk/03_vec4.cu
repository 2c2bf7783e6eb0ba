// softmax/03_vec4: 16 bytes a load and a store.
//
// Idea    a quarter (f32) or an eighth of the memory instructions; y holds the exponentials until
//         the sum is known, so that none is computed twice (in f32: see three_pass.cuh).
// Versus  02_shared: packs in place of elements. Maximum and sum are folded one after the other,
//         because the stored exponentials must all be relative to the row's maximum.
// Bytes   x twice, y written twice and read once; all but the first time mostly in the caches.
// Limits  rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/operators.hpp"
#include "ops/softmax/walk/block_folds.cuh"
#include "ops/softmax/walk/three_pass.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void vec4_kernel(Rows<T> a) {
  extern __shared__ float floats[];  // one per thread
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    three_passes(packed(a, row),
                 [](float mine, auto join) { return tree_fold(floats, mine, join); });
  }
}

}  // namespace

Status vec4(const Call& call, const WalkLaunch& how) {
  return with_rows(call,
                   [&]<class T>(Rows<T> rows) { return launch(vec4_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::softmax
