// softmax/10_split_k: a row over many blocks, in two launches.
//
// Idea    the merge one level higher: each block folds a chunk and leaves its state in the
//         workspace; the next launch merges a row's states and writes.
// Versus  09_two_pass_vector: few long rows fill the whole GPU, not one SM each.
// Bytes   x twice, y once, and 8 bytes a chunk. The second read comes from L2 if all
//         of x fits there.
// Limits  rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "merge/grid.cuh"
#include "ops/softmax/walk/chunk.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void split_k_fold(Rows<T> a, State<float>* partials, int chunks) {
  __shared__ BlockMerge::Scratch scratch;
  const GridMerge grid(partials, chunks);
  for (std::int64_t item = blockIdx.x; item < a.rows * chunks; item += gridDim.x) {
    const std::int64_t r = item / chunks;
    const auto index = static_cast<int>(item % chunks);
    const PackedRow<T> row = packed(a, r);
    const Chunk chunk = chunk_of(row.packs(), chunks, index);
    const State<float> mine = fold_packs(row, chunk.begin, chunk.end);
    const State<float> all = BlockMerge(scratch).all(mine);
    if (threadIdx.x == 0) grid.put(r, index, all);
  }
}

template <class T>
__global__ void split_k_finish(Rows<T> a, State<float>* partials, int chunks) {
  __shared__ BlockMerge::Scratch scratch;
  const GridMerge grid(partials, chunks);
  for (std::int64_t item = blockIdx.x; item < a.rows * chunks; item += gridDim.x) {
    const std::int64_t r = item / chunks;
    const PackedRow<T> row = packed(a, r);
    const Chunk chunk = chunk_of(row.packs(), chunks, static_cast<int>(item % chunks));
    const State<float> all = grid.all(r, BlockMerge(scratch));
    finish_packs(row, all, chunk.begin, chunk.end);
  }
}

}  // namespace

Status split_k(const Call& call, const WalkLaunch& how) {
  auto* partials = reinterpret_cast<State<float>*>(call.workspace);
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    Status status = launch(split_k_fold<T>, how, call, rows, partials, how.split);
    return status.ok() ? launch(split_k_finish<T>, how, call, rows, partials, how.split) : status;
  });
}

}  // namespace onepass::ops::softmax
