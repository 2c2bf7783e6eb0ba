// loss/gpu_block: cross-entropy, forward and backward.
//
// Idea    softmax's kernel with a state that also counts classes, for label smoothing.
// Versus  softmax/gpu_block: another Row.
// Bytes   x once; backward dx once.
// Limits  rows that 16 blocks hold (sm_90; one block before it); every dtype and option.
// Proof   `onepass verify`; numbers: results/.

#include "ops/loss/gpu/loss.cuh"
#include "ops/loss/gpu/reduce.hpp"
#include "ops/loss/gpu/variants.hpp"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::loss {

Status gpu_block(const RowArgs& args, const gpu_rows::BlockLaunch& block) {
  return with_reduction(args, [&] { return run_block<LossRows>(args, block); });
}

}  // namespace onepass::ops::loss
