// softmax/22_stream: rows one after the other through blocks, or clusters of them, that stay.
//
// Idea    while a row is computed and written from registers, the next is on its way to shared memory:
//         the memory always has something to do, where 21_block has every block wait for its first bytes.
// Versus  21_block: the same chunk of a row, but as few blocks as run at once, each with many rows.
// Bytes   x once, y once.
// Limits  dense rows without options that 16 blocks hold in shared memory (sm_90; one block before it).
// Proof   `onepass verify`; numbers: results/.

#include "ops/row/stream.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {

Status gpu_stream(const RowArgs& args, const Plan& plan) {
  return run_stream<ForwardRows>(args, plan);
}

}  // namespace onepass::ops::softmax
