// Rows that all processors share: teams of as many blocks as a row needs, in one
// cooperative launch.
#pragma once

#include <cooperative_groups.h>

#include "merge/grid.cuh"
#include "rows/gpu/stream.cuh"

namespace onepass {

// A team of any `size` blocks that run at the same time. They meet in the workspace: there are two
// sets of partials, for turns to take alternately, and behind them a counter for each team.
template <class Join>
class GridTeam {
 public:
  using Value = typename Join::Value;
  using Slots = typename BlockFold<Join>::Scratch;

  __device__ GridTeam(Slots& slots, void* workspace, int size)
      : block_(slots), size_(size), partials_(static_cast<Value*>(workspace)) {}

  __device__ std::int64_t index() const { return static_cast<int>(blockIdx.x) / size_; }
  __device__ int count() const { return static_cast<int>(gridDim.x) / size_; }
  __device__ int rank() const { return static_cast<int>(blockIdx.x) % size_; }

  __device__ Value all(const Value& mine, int turn) const {
    const GridFold<Join> grid(partials_ + (turn % 2) * gridDim.x, size_);
    const Value folded = block_.all(mine);
    if (threadIdx.x == 0) grid.put(index(), rank(), folded);
    meet(turn);
    return grid.all(index(), block_);
  }

 private:
  // The first time the whole grid meets, which makes the counters known to be zero; after that each
  // team goes at its own pace, so that one reads while another writes.
  __device__ void meet(int turn) const {
    auto* counter = reinterpret_cast<unsigned*>(partials_ + 2 * gridDim.x) + index();
    if (turn == 0) {
      if (rank() == 0 && threadIdx.x == 0) *counter = 0;
      cooperative_groups::this_grid().sync();
      return;
    }
    if (threadIdx.x == 0) {
      const auto all_of_them = static_cast<unsigned>(turn * size_);
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
      unsigned here = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(counter) : "memory");
      } while (here < all_of_them);
    }
    __syncthreads();
  }

  BlockFold<Join> block_;
  int size_;
  Value* partials_;
};

template <class Row, bool Long>
__global__ void __launch_bounds__(gpu_rows::kBlockThreads, gpu_rows::kBlocksAtOnce)
    grid_stream(const __grid_constant__ typename Row::Args args, void* workspace, int split,
                int size, int depth) {
  using Team = GridTeam<typename Row::Join>;
  __shared__ typename Team::Slots slots;
  stream_rows<Row, Long>(args, Team(slots, workspace, split), size, depth);
}

// Rows of any kind, without a row that is asked for ahead, in one block per processor: they
// take the registers.
template <class Row>
__global__ void __launch_bounds__(gpu_rows::kBlockThreads, 1)
    grid_rows(const __grid_constant__ typename Row::Args args, void* workspace, int split, int size,
              int staged) {
  using Team = GridTeam<typename Row::Join>;
  extern __shared__ __align__(16) std::byte stage[];
  __shared__ typename Team::Slots slots;
  const Team team(slots, workspace, split);
  std::int64_t at = args.first_row + team.index();
  for (int turn = 0; at < args.end_row; ++turn, at += team.count()) {
    const Row row(args, at);
    Chunk<Row, gpu_rows::kAnyPacks, true> chunk(
        row, size, team.rank(), reinterpret_cast<typename Row::Held*>(stage), staged);
    const auto total = team.all(chunk.fold(), turn);
    chunk.finish(total);
    if (team.rank() == 0 && threadIdx.x == 0) row.conclude(total);
  }
}

// All blocks on the GPU at once, so that they can wait for each other.
template <class Rows>
Status run_grid(const RowArgs& args, const gpu_rows::GridLaunch& grid) {
  return with_row<Rows>(args, grid.general, [&]<class Row>(Type<Row>) {
    const auto run = [&](auto* kernel) {
      LaunchConfig how = config_of(args, grid);
      how.together = true;
      return launch(how, "gpu_grid", kernel, args_for<typename Row::Args>(args),
                    static_cast<void*>(args.workspace), grid.split, grid.chunk, grid.slots);
    };
    if constexpr (kTakesAny<Row>) {
      return run(grid_rows<Row>);
    } else {
      return grid.looped ? run(grid_stream<Row, true>) : run(grid_stream<Row, false>);
    }
  });
}

}  // namespace onepass
