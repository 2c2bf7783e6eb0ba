// softmax/07_register_shared_medium: up to 32 KB of a row in shared memory, the rest in registers.
//
// Idea    rows four times as long on chip; small blocks for short rows, so that several fit an SM.
// Versus  06_register_packed: packs are held as they came, not as floats, and part of them in shared
//         memory. The price is a second exponential an element.
// Bytes   x once, y once.
// Limits  32768 columns; rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "ops/softmax/geometry.hpp"
#include "ops/softmax/on_chip.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ __launch_bounds__(1024) void register_shared_medium_kernel(Rows<T> a, int staged) {
  extern __shared__ std::byte stage[];
  __shared__ BlockMerge::Scratch scratch;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    softmax_on_chip<geometry::kHeldPacks>(a.packed(row), reinterpret_cast<Pack<T>*>(stage), staged,
                                          scratch);
  }
}

}  // namespace

Status register_shared_medium(const RowArgs& args, const Plan& plan) {
  const auto staged = static_cast<int>(plan.shared_bytes / kPackBytes);
  return with_rows(args, [&]<class T>(Rows<T> rows) {
    return launch(register_shared_medium_kernel<T>, plan, args, rows, staged);
  });
}

}  // namespace onepass::ops::softmax
