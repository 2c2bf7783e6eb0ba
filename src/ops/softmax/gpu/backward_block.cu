// softmax/gpu_backward_block: the gradients of softmax and log_softmax, a row in the registers of a
// block or a cluster.
//
// Idea    the forward's kernel with a sum for a state: y and dy stay on chip between the sum
//         and the gradient.
// Versus  gpu_block: another Row.
// Bytes   y and dy once, dx once.
// Limits  rows that 16 blocks hold (sm_90; one block before it); every dtype and option, y and dy
//         f64 both or neither.
// Proof   `onepass verify`; numbers: results/.

#include "ops/softmax/gpu/backward.cuh"
#include "ops/softmax/gpu/variants.hpp"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::softmax {

Status gpu_backward_block(const RowArgs& args, const gpu_rows::BlockLaunch& block) {
  return run_block<BackwardRows>(args, block);
}

}  // namespace onepass::ops::softmax
