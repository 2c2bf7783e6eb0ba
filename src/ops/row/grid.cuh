// Rows that all processors share: the drive's third kernel, and its launch.
#pragma once

#include <cooperative_groups.h>

#include "merge/grid.cuh"
#include "ops/row/launch.cuh"

namespace onepass {

// Rows over all blocks at once, in waves of as many rows as go.
template <class Row, int P>
__global__ __launch_bounds__(gpu_rows::kBlockThreads, gpu_rows::kGridBlocks) void grid_rows(
    const __grid_constant__ typename Row::Args args, typename Row::Partial* partials, int split,
    int size, int staged) {
  using Join = typename Row::Join;
  extern __shared__ __align__(16) std::byte stage[];
  __shared__ typename BlockFold<Join>::Scratch scratch;
  const BlockFold<Join> block(scratch);
  const auto slots = static_cast<int>(gridDim.x) / split;  // rows a wave
  const int slot = static_cast<int>(blockIdx.x) / split;
  const int index = static_cast<int>(blockIdx.x) % split;
  for (std::int64_t wave = 0; args.first_row + wave * slots < args.end_row; ++wave) {
    // Waves take turns between two sets of partials, so that one barrier a wave is enough.
    const GridFold<Join> grid(partials + (wave % 2) * slots * split, split);
    const std::int64_t wanted = args.first_row + wave * slots + slot;
    const bool mine = wanted < args.end_row;
    const Row row(args, mine ? wanted : args.end_row - 1);
    Chunk<Row, P, true> chunk(row, size, index, reinterpret_cast<typename Row::Held*>(stage),
                              staged);
    if (mine) {
      const auto folded = block.all(chunk.fold());
      if (threadIdx.x == 0) grid.put(slot, index, folded);
    }
    cooperative_groups::this_grid().sync();
    if (mine) {
      const auto total = grid.all(slot, block);
      chunk.finish(total);
      if (index == 0 && threadIdx.x == 0) row.conclude(total);
    }
  }
}

// All blocks on the GPU at once, so that they can wait for each other.
template <class Rows>
Status run_grid(const RowArgs& args, const Plan& plan) {
  return with_row<Rows>(args, plan, [&]<class Row>(Type<Row>) {
    constexpr int kPacks = kTakesAny<Row> ? gpu_rows::kAnyPacks : gpu_rows::kLoopPacks;
    const auto kernel = grid_rows<Row, kPacks>;
    if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), plan.shared_bytes);
        !status.ok()) {
      return status;
    }
    cudaLaunchConfig_t config = config_of(plan, args);
    cudaLaunchAttribute together{};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    config.attrs = &together;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, args_for<typename Row::Args>(args),
                       reinterpret_cast<typename Row::Partial*>(args.workspace), plan.split,
                       plan.chunk,
                       static_cast<int>(plan.shared_bytes / sizeof(typename Row::Held)));
    return launch_status(plan.variant);
  });
}

}  // namespace onepass
