// softmax/22_grid: a row over all processors, in one cooperative launch, for rows of any length.
//
// Idea    every block keeps its chunk of the row in shared memory, as it was stored, while all blocks
//         meet; what does not fit it reads again, last first, so that L2 has most of it.
// Versus  11_split_k_single: the chunk stays on chip. Rows go through the grid in waves.
// Bytes   x once as far as the shared memory of all blocks holds it (29 MB on an H200), y once.
// Limits  none: every op, dtype and option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "ops/row/grid.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {

Status gpu_grid(const RowArgs& args, const Plan& plan) { return run_grid<ForwardRows>(args, plan); }

}  // namespace onepass::ops::softmax
