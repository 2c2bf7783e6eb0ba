// softmax/gpu_backward_grid: the gradients of softmax and log_softmax, a row over all processors.
//
// Idea    the forward's kernel with a sum for a state: y and dy stay on chip between the sum
//         and the gradient.
// Versus  gpu_grid: another Row.
// Bytes   y and dy once, dx once.
// Limits  none; every dtype and option, y and dy f64 both or neither.
// Proof   `onepass verify`; numbers: results/.

#include "ops/softmax/gpu/backward.cuh"
#include "ops/softmax/gpu/variants.hpp"
#include "rows/gpu/grid.cuh"

namespace onepass::ops::softmax {

Status gpu_backward_grid(const RowArgs& args, const gpu_rows::GridLaunch& grid) {
  return run_grid<BackwardRows>(args, grid);
}

}  // namespace onepass::ops::softmax
