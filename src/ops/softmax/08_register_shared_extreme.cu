// softmax/08_register_shared_extreme: registers, and all the shared memory that a block may have.
//
// Idea    the longest row that one block can hold. With rows that long one block fills an SM, and
//         nothing overlaps: it loads, then computes, then stores.
// Versus  07_register_shared_medium: registers first, and shared memory to the limit.
// Bytes   x once, y once.
// Limits  as many columns as 128 KB of registers and the block's shared memory hold (an H200: 90,621
//         of f32); rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "ops/softmax/geometry.hpp"
#include "ops/softmax/on_chip.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ __launch_bounds__(1024) void register_shared_extreme_kernel(Rows<T> a, int staged) {
  extern __shared__ std::byte stage[];
  __shared__ BlockMerge::Scratch scratch;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    softmax_on_chip<geometry::kHeldPacks>(a.packed(row), reinterpret_cast<Pack<T>*>(stage), staged,
                                          scratch);
  }
}

}  // namespace

Status register_shared_extreme(const RowArgs& args, const Plan& plan) {
  const auto staged = static_cast<int>(plan.shared_bytes / kPackBytes);
  return with_rows(args, [&]<class T>(Rows<T> rows) {
    return launch(register_shared_extreme_kernel<T>, plan, args, rows, staged);
  });
}

}  // namespace onepass::ops::softmax
