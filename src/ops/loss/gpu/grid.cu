// loss/12_grid: cross-entropy, forward and backward.
//
// Idea    softmax's kernel with a state that also counts classes, for label smoothing.
// Versus  softmax/22_grid: another Row.
// Bytes   x once; backward dx once.
// Limits  none; every dtype and option.
// Proof   `onepass verify`; numbers: results/.

#include "ops/loss/gpu/loss.cuh"
#include "ops/loss/gpu/reduce.hpp"
#include "ops/loss/variants.hpp"
#include "rows/gpu/grid.cuh"

namespace onepass::ops::loss {

Status gpu_grid(const RowArgs& args, const Plan& plan) {
  return with_reduction(args, plan, run_grid<LossRows>);
}

}  // namespace onepass::ops::loss
