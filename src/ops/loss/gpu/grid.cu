// loss/gpu_grid: cross-entropy, forward and backward.
//
// Idea    softmax's kernel with a state that also counts classes, for label smoothing.
// Versus  softmax/gpu_grid: another Row.
// Bytes   x once; backward dx once.
// Limits  none; every dtype and option.
// Proof   `onepass verify`; numbers: results/.

#include "ops/loss/gpu/loss.cuh"
#include "ops/loss/gpu/reduce.hpp"
#include "ops/loss/gpu/variants.hpp"
#include "rows/gpu/grid.cuh"

namespace onepass::ops::loss {

Status gpu_grid(const RowArgs& args, const gpu_rows::GridLaunch& grid) {
  return with_reduction(args, [&] { return run_grid<LossRows>(args, grid); });
}

}  // namespace onepass::ops::loss
