// softmax/01_block_serial: one block per row; thread 0 folds the threads' states.
//
// Idea    a state per thread, merged by one of them: the merge is all the cooperation there is.
// Versus  00_naive: neighbouring threads read neighbouring elements, so a warp's load is one line.
// Bytes   x three times, y once; the second and third time a row comes out of a cache.
// Limits  rows at one stride, one dtype, no options.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/operators.hpp"
#include "ops/softmax/walk/block_folds.cuh"
#include "ops/softmax/walk/slice.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void block_serial_kernel(Rows<T> a) {
  extern __shared__ State<float> slots[];  // one per thread
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const State<float> mine = fold_slice(a.in(row), a.cols);
    const State<float> all = serial_fold(slots, mine, Merge<float>());
    finish_slice(all, a.in(row), a.out(row), a.cols);
  }
}

}  // namespace

Status block_serial(const Call& call, const WalkLaunch& how) {
  return with_rows(
      call, [&]<class T>(Rows<T> rows) { return launch(block_serial_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::softmax
