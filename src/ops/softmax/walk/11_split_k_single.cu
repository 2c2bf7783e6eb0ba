// softmax/11_split_k_single: a row over many blocks, in one cooperative launch.
//
// Idea    all blocks are on the GPU at once, so they can meet in the middle of the kernel.
// Versus  10_split_k: a barrier across the grid in place of a second launch.
// Bytes   as 10_split_k.
// Limits  as 10_split_k; the GPU must allow cooperative launches, as all since sm_60 do.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include <cooperative_groups.h>

#include "merge/grid.cuh"
#include "ops/softmax/walk/chunk.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void __launch_bounds__(kSplitThreads, kResidentBlocks)
    split_k_single_kernel(Rows<T> a, State<float>* partials, int chunks) {
  __shared__ BlockMerge::Scratch scratch;
  const GridMerge grid(partials, chunks);
  // Calls body(r, index, row, chunk) for each chunk that is this block's.
  const auto for_each_chunk = [&](auto body) {
    for (std::int64_t item = blockIdx.x; item < a.rows * chunks; item += gridDim.x) {
      const auto index = static_cast<int>(item % chunks);
      const PackedRow<T> row = packed(a, item / chunks);
      body(item / chunks, index, row, chunk_of(row.packs(), chunks, index));
    }
  };
  for_each_chunk([&](std::int64_t r, int index, const PackedRow<T>& row, Chunk chunk) {
    const State<float> mine = fold_packs(row, chunk.begin, chunk.end);
    const State<float> all = BlockMerge(scratch).all(mine);
    if (threadIdx.x == 0) grid.put(r, index, all);
  });
  cooperative_groups::this_grid().sync();
  for_each_chunk([&](std::int64_t r, int, const PackedRow<T>& row, Chunk chunk) {
    finish_packs(row, grid.all(r, BlockMerge(scratch)), chunk.begin, chunk.end);
  });
}

}  // namespace

Status split_k_single(const Call& call, const WalkLaunch& how) {
  auto* partials = reinterpret_cast<State<float>*>(call.workspace);
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    return launch_cooperative(split_k_single_kernel<T>, how, call, rows, partials, how.split);
  });
}

}  // namespace onepass::ops::softmax
