// softmax/02_shared: one block per row, the states folded as a tree in shared memory.
//
// Idea    log2(threads) steps in place of one per thread; any number of warps, not
//         only powers of two.
// Versus  01_block_serial: the fold. The slices and the finish are the same.
// Bytes   x three times, y once; the second and third time a row comes out of a cache.
// Limits  rows at one stride, one dtype, no options.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/operators.hpp"
#include "ops/softmax/walk/block_folds.cuh"
#include "ops/softmax/walk/slice.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void shared_kernel(Rows<T> a) {
  extern __shared__ State<float> slots[];  // one per thread
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const State<float> mine = fold_slice(a.in(row), a.cols);
    const State<float> all = tree_fold(slots, mine, Merge<float>());
    finish_slice(all, a.in(row), a.out(row), a.cols);
  }
}

}  // namespace

Status shared(const Call& call, const WalkLaunch& how) {
  return with_rows(
      call, [&]<class T>(Rows<T> rows) { return launch(shared_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::softmax
