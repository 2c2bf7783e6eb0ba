// loss/12_pipeline: cross-entropy, forward and backward, row after row.
//
// Idea    softmax's kernel; the row's one logit is looked up.
// Versus  softmax/22_pipeline: another Row.
// Bytes   x once; backward dx once.
// Limits  dense rows without options that 16 blocks hold in registers (sm_90; one block before it).
// Proof   `onepass verify`; numbers: results/.

#include "ops/loss/loss.cuh"
#include "ops/loss/reduce.hpp"
#include "ops/loss/variants.hpp"
#include "ops/row/pipeline.cuh"

namespace onepass::ops::loss {

Status gpu_pipeline(const RowArgs& args, const Plan& plan) {
  return with_reduction(args, plan, run_pipeline<LossRows>);
}

}  // namespace onepass::ops::loss
