// softmax/07_register_shared_medium: up to 32 KB of a row in shared memory, the rest in registers.
//
// Idea    rows four times as long on chip; small blocks for short rows, so that several fit an SM.
// Versus  06_register_packed: packs are held as they came, not as floats, and part of them in
//         shared memory. The price is a second exponential an element.
// Bytes   x once, y once.
// Limits  32768 columns; rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.
//
// The kernel is on_chip.cuh's, which both steps launch.

#include "ops/softmax/walk/on_chip.cuh"

namespace onepass::ops::softmax {

Status register_shared_medium(const Call& call, const WalkLaunch& how) {
  return launch_on_chip(call, how);
}

}  // namespace onepass::ops::softmax
