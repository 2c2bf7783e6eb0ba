// softmax/20_group: short rows, a few lanes each, several rows a warp.
//
// Idea    16 bytes a lane: a row of 32 bf16 is four lanes, and a warp has eight rows on their way.
//         A group of lanes folds with shuffles alone.
// Versus  06_register_packed: no block, no barrier, no shared memory.
// Bytes   x once, y once.
// Limits  rows that a warp holds in registers; every op, dtype and option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "ops/row/launch.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {

Status gpu_group(const RowArgs& args, const Plan& plan) {
  return run_group<ForwardRows>(args, plan);
}

}  // namespace onepass::ops::softmax
