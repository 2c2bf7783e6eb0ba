// softmax/22_pipeline: rows one after the other through blocks, or clusters of them, that stay.
//
// Idea    a row is written from registers while the next is folded and two more are on their way to shared
//         memory; the exchange of states has the time of a whole row.
// Versus  21_block: the same chunk of a row, but only as many blocks as run at once, each with many rows.
// Bytes   x once, y once.
// Limits  dense rows without options that 16 blocks hold in registers (sm_90; one block before it).
// Proof   `onepass verify`; numbers: results/.

#include "ops/row/pipeline.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {

Status gpu_pipeline(const RowArgs& args, const Plan& plan) {
  return run_pipeline<ForwardRows>(args, plan);
}

}  // namespace onepass::ops::softmax
