// softmax/gpu_backward_group: the gradients of softmax and log_softmax, short rows,
// a few lanes each.
//
// Idea    the forward's kernel with a sum for a state: y and dy stay on chip between the sum
//         and the gradient.
// Versus  gpu_group: another Row.
// Bytes   y and dy once, dx once.
// Limits  rows that a warp holds in registers; every dtype and option, y and dy f64
//         both or neither.
// Proof   `onepass verify`; numbers: results/.

#include "ops/softmax/gpu/backward.cuh"
#include "ops/softmax/gpu/variants.hpp"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::softmax {

Status gpu_backward_group(const RowArgs& args, const gpu_rows::GroupLaunch& group) {
  return run_group<BackwardRows>(args, group);
}

}  // namespace onepass::ops::softmax
