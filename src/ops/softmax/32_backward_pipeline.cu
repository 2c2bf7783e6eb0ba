// softmax/32_backward_pipeline: the gradients of softmax and log_softmax, row after row.
//
// Idea    the forward's kernel with a sum for a state: y and dy of the next row come while this one's
//         gradient is written.
// Versus  22_pipeline: another Row.
// Bytes   y and dy once, dx once.
// Limits  dense rows without options that 16 blocks hold in registers (sm_90; one block before it).
// Proof   `onepass verify`; numbers: results/.

#include "ops/row/pipeline.cuh"
#include "ops/softmax/backward.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {

Status gpu_backward_pipeline(const RowArgs& args, const Plan& plan) {
  return run_pipeline<BackwardRows>(args, plan);
}

}  // namespace onepass::ops::softmax
