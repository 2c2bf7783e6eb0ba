// softmax/06_register_packed: a row in the registers of one block. One read, one write.
//
// Idea    every thread loads all its packs before it uses any, so that the memory is kept busy; the
//         exponentials are computed once, against the thread's own maximum, and scaled at the end.
// Versus  05_online: x is not read again. The merge is the same, a thread's registers at a time.
// Bytes   x once, y once.
// Limits  8192 columns; rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/block.cuh"
#include "merge/thread.cuh"
#include "ops/softmax/walk/packs.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T, int Packs>
__global__ void register_packed_kernel(Rows<T> a) {
  __shared__ BlockMerge::Scratch scratch;
  constexpr int kLanes = Pack<T>::kLanes;
  for (std::int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const PackedRow<T> row = packed(a, r);
    Pack<T> packs[Packs];
#pragma unroll
    for (int k = 0; k < Packs; ++k) packs[k] = row.load(threadIdx.x + k * blockDim.x);
    float v[Packs * kLanes];
    widen(packs, v);

    const State<float> mine = fold_in_place(v);
    const State<float> all = BlockMerge(scratch).all(mine);
    const float scale = factor(all, mine.m);
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      row.store(threadIdx.x + k * blockDim.x, v + k * kLanes, scale);
    }
  }
}

}  // namespace

Status register_packed(const Call& call, const WalkLaunch& how) {
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    switch (how.packs) {
      case 1: return launch(register_packed_kernel<T, 1>, how, call, rows);
      case 2: return launch(register_packed_kernel<T, 2>, how, call, rows);
      case 4: return launch(register_packed_kernel<T, 4>, how, call, rows);
      default: break;
    }
    if constexpr (sizeof(T) == 4) {  // the longest row of 16 bits has half as many packs
      return launch(register_packed_kernel<T, 8>, how, call, rows);
    } else {
      return Status{Code::internal, "register_packed: no kernel has so many packs per thread"};
    }
  });
}

}  // namespace onepass::ops::softmax
