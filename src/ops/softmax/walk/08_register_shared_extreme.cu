// softmax/08_register_shared_extreme: registers, and all the shared memory that a block may have.
//
// Idea    the longest row that one block can hold. With rows that long one block fills an SM, and
//         nothing overlaps: it loads, then computes, then stores.
// Versus  07_register_shared_medium: registers first, and shared memory to the limit.
// Bytes   x once, y once.
// Limits  as many columns as 128 KB of registers and the block's shared memory hold (an H200:
//         90,621 of f32); rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.
//
// The kernel is on_chip.cuh's, which both steps launch.

#include "ops/softmax/walk/on_chip.cuh"

namespace onepass::ops::softmax {

Status register_shared_extreme(const Call& call, const WalkLaunch& how) {
  return launch_on_chip(call, how);
}

}  // namespace onepass::ops::softmax
