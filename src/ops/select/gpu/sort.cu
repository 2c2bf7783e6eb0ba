// topk/gpu_sort: any K, by the key from which on there are K.
//
// Idea    a block per row: it reads the row until it knows that key, takes all keys from it on to
//         the workspace and sorts them there.
// Versus  gpu_block: no candidates, so no limit to K, at the price of more reads.
// Bytes   x four times, from L2 where it stays there; K keys log² K times.
// Limits  f32, f16, bf16; every option of the row ops.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/launch.cuh"
#include "ops/select/gpu/search.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

// Keys with the index before the value; and back.
__device__ inline void turn(Key* keys, int size) {
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
    keys[i] = keys[i] << 32 | keys[i] >> 32;
  }
}

// The lower index first; what is no key stays last.
__device__ inline void order_by_index(Key* keys, int size) {
  turn(keys, size);
  sort_descending(keys, size);
  turn(keys, size);
  __syncthreads();
}

template <class Row>
__global__ void __launch_bounds__(gpu_select::kMostThreads)
    sort_rows(const __grid_constant__ typename Row::Args args,
              const __grid_constant__ Common common, const __grid_constant__ TopkOutputs out,
              Key* keys, int size) {
  __shared__ SearchShared scratch;
  __shared__ unsigned bins[SearchMemory::kBins];
  __shared__ BlockFold<MergeTallies>::Scratch tallies;
  __shared__ BlockFold<Add<float>>::Scratch sums;
  __shared__ int count;
  await_previous();
  const std::int64_t at = common.first_row + blockIdx.x;
  const double temperature = value_for(common.space, common.temperature, at);
  const Row row(args, at, common.factor_for(temperature), temperature);
  const Target target = target_of(common, out, row, at);
  const auto cols = static_cast<int>(common.space.cols);
  Tally mine = MergeTallies::identity();
  each_element(row, cols, true, [&](float x, unsigned index) {
    mine.state = merge(mine.state, row.fold_one(x).state);
    mine.before += target.follows(x, static_cast<int>(index)) ? 1 : 0;
  });
  Tally total = BlockFold<MergeTallies>(tallies).all(mine);
  if (!(temperature > 0 && isfinite(temperature))) {
    total.state = broken_state();
  }
  const Answer answer(common, out, at, row, total.state);
  answer.write_target(target, total.before);
  keys += blockIdx.x * static_cast<std::int64_t>(size);
  if (!answer.broken()) {
    const Search search(scratch, {bins, keys, size}, row, cols, total.state.m, true);
    const Key limit =
        search.from(static_cast<double>(out.k), 1.0F, [](float, unsigned) { return 1.0F; });
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    each_element(row, cols, true, [&](float x, unsigned index) {
      const Key key = key_of(x, index);
      if (key < limit) return;
      const int place = atomicAdd(&count, 1);
      if (place < size) keys[place] = key;
    });
    __syncthreads();
    for (int i = count + static_cast<int>(threadIdx.x); i < size;
         i += static_cast<int>(blockDim.x)) {
      keys[i] = 0;
    }
    sort_descending(keys, size);
    if (!out.sorted) order_by_index(keys, size);
  }
  answer.write_in_place(keys, static_cast<int>(out.k), sums);
}

}  // namespace

Status gpu_sort(const RowArgs& args, const gpu_select::SortLaunch& sort) {
  const TopkOutputs out = outputs_of(args);
  auto* keys = reinterpret_cast<Key*>(args.workspace);
  const auto run = [&]<class Row>(Type<Row>) {
    for (RowArgs some = args; some.first_row < args.end_row; some.first_row += sort.blocks) {
      gpu_select::SortLaunch part = sort;
      part.blocks = std::min(sort.blocks, args.end_row - some.first_row);
      Status status = launch_rows(sort_rows<Row>, "gpu_sort", some, part,
                                  common_of(some, temperature_of(args)), out, keys, sort.keys);
      if (!status.ok()) return status;
    }
    return Status{};
  };
  return with_select_row<gpu_select::kFewPacks>(args, sort.general, 0, run);
}

}  // namespace onepass::ops::select
