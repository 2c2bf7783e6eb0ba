// loss/gpu_weighted: cross-entropy whose classes have weights, or probabilities as targets,
// forward and backward.
//
// Idea    one kernel for rows of any length: a power of two of a warp's lanes per row, or a block,
//         which keeps it in shared memory until it is known.
// Versus  gpu_group, gpu_block, gpu_grid: one instance a dtype in place of many. These
//         options are rare.
// Bytes   x and the probabilities once, backward dx once. What a block cannot hold is read twice,
//         last first, so that L2 has most of it.
// Limits  none; every dtype and option. A row has one block at most.
// Proof   `onepass verify`; numbers: results/.

#include "core/cuda/dependent.cuh"
#include "merge/block.cuh"
#include "ops/loss/gpu/plan.hpp"
#include "ops/loss/gpu/reduce.hpp"
#include "ops/loss/gpu/variants.hpp"
#include "ops/loss/gpu/weighted.cuh"
#include "rows/gpu/launch.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::loss {
namespace {

// `lanes` threads per row: a power of two up to a warp, or all of the block. What is to be written
// stays in shared memory, as far as `staged` packs.
template <class Row>
__global__ void __launch_bounds__(gpu_rows::kBlockThreads, 1)
    weighted_rows(const __grid_constant__ RowArgs args, int lanes, int staged) {
  using Join = typename Row::Join;
  using Held = typename Row::Held;
  constexpr int kPacks = gpu_rows::kWeightedPacks;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ typename BlockFold<Join>::Scratch scratch;
  const BlockFold<Join> block(scratch);
  await_previous();
  const int groups = static_cast<int>(blockDim.x) / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int first_slot = group * lanes * kPacks;  // a group's row has no more
  auto* const stage = reinterpret_cast<Held*>(shared) + first_slot;
  staged -= first_slot;
  const std::int64_t step = std::int64_t{gridDim.x} * groups;
  for (std::int64_t turn = args.first_row + std::int64_t{blockIdx.x} * groups; turn < args.end_row;
       turn += step) {
    // A group past the last row goes along with that, for the warp's shuffles.
    const bool has_row = turn + group < args.end_row;
    const Row row(args, has_row ? turn + group : args.end_row - 1);
    const int end = row.packs();

    // Fold: this thread's packs, which no other thread looks at.
    RunningShares<typename Row::T> mine;
    for (int i = lane; i < end; i += kPacks * lanes) {
      typename Row::Stored stored[kPacks];
      Held held[kPacks];
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        stored[p] = i + p * lanes < end ? row.fetch(i + p * lanes) : Row::nothing();
      }
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        held[p] = row.hold(stored[p], i + p * lanes, end);
        if (row.writes() && i + p * lanes < min(end, staged)) stage[i + p * lanes] = held[p];
      }
      mine.take(row.fold(held, i, lanes, end));
    }

    // Climb: every thread leaves with the shares of the row.
    const auto total =
        lanes > kWarp ? block.all(mine.all()) : group_fold(mine.all(), Join(), lanes);

    // Finish: in the order in which what is read again has not left L2.
    if (!has_row) continue;
    if (row.writes()) {
      const typename Row::Scale scale = row.scale(total);
      int i = lane;
      while (i + lanes < end) i += lanes;
      for (; i >= 0 && i < end; i -= lanes) {
        row.finish(i, i < staged ? stage[i] : row.hold(row.fetch(i), i, end), scale);
      }
    }
    if (lane == 0) row.conclude(total);
  }
}

template <class T>
Status run_rows(const RowArgs& args, const gpu_rows::WeightedLaunch& weighted) {
  using Row = WeightedRow<T>;
  return launch_rows(weighted_rows<Row>, "gpu_weighted", args, weighted, weighted.row_threads,
                     weighted.staged);
}

Status run_any(const RowArgs& args, const gpu_rows::WeightedLaunch& weighted) {
  return args.logits.x.dtype == DType::f64 ? run_rows<double>(args, weighted)
                                           : run_rows<float>(args, weighted);
}

}  // namespace

Status gpu_weighted(const RowArgs& args, const gpu_rows::WeightedLaunch& weighted) {
  return with_reduction(args, [&] { return run_any(args, weighted); });
}

}  // namespace onepass::ops::loss
