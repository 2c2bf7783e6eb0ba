// loss/10_group: cross-entropy, forward and backward.
//
// Idea    softmax's kernel with a state that also counts classes, for label smoothing.
// Versus  softmax/20_group: another Row.
// Bytes   x once; backward dx once.
// Limits  rows that a warp holds in registers; every dtype and option.
// Proof   `onepass verify`; numbers: results/.

#include "ops/loss/gpu/loss.cuh"
#include "ops/loss/gpu/reduce.hpp"
#include "ops/loss/variants.hpp"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::loss {

Status gpu_group(const RowArgs& args, const Plan& plan) {
  return with_reduction(args, plan, run_group<LossRows>);
}

}  // namespace onepass::ops::loss
