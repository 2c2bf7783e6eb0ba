// softmax/gpu_grid: a row over all processors, in one cooperative launch, for rows of any length.
//
// Idea    teams of blocks, as many as a row needs. A block has its chunk of the row on chip while
//         the team meets, and asks for its chunk of the next row while it writes this one's. What
//         does not fit it reads again, last first, so that L2 has most of it.
// Versus  11_split_k_single: the chunk stays on chip, and rows overlap.
// Bytes   x once as far as registers and shared memory hold it (45 MB on an H200), y once.
// Limits  none: every op, dtype and option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "ops/softmax/gpu/forward.cuh"
#include "ops/softmax/gpu/variants.hpp"
#include "rows/gpu/grid.cuh"

namespace onepass::ops::softmax {

Status gpu_grid(const RowArgs& args, const gpu_rows::GridLaunch& grid) {
  return run_grid<ForwardRows>(args, grid);
}

}  // namespace onepass::ops::softmax
