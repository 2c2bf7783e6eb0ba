// loss/gpu_group: cross-entropy, forward and backward.
//
// Idea    softmax's kernel with a state that also counts classes, for label smoothing.
// Versus  softmax/gpu_group: another Row.
// Bytes   x once; backward dx once.
// Limits  rows that a warp holds in registers; every dtype and option.
// Proof   `onepass verify`; numbers: results/.

#include "ops/loss/gpu/loss.cuh"
#include "ops/loss/gpu/reduce.hpp"
#include "ops/loss/gpu/variants.hpp"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::loss {

Status gpu_group(const RowArgs& args, const gpu_rows::GroupLaunch& group) {
  return with_reduction(args, [&] { return run_group<LossRows>(args, group); });
}

}  // namespace onepass::ops::loss
