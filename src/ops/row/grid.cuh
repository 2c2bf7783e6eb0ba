// Rows that all processors share: teams of as many blocks as a row needs, in one cooperative launch.
#pragma once

#include <cooperative_groups.h>

#include "ops/row/pipeline.cuh"
#include "ops/row/stream.cuh"

namespace onepass {

// A team of any `size` blocks that run at the same time. They meet in the workspace: there are two sets of
// partials, for turns to take alternately, and behind them a counter for each team.
template <class Join>
class GridTeam {
 public:
  using Value = typename Join::Value;
  using Slots = Value[2][kWarp];

  __device__ GridTeam(Slots& slots, void* workspace, int size)
      : slots_(slots), size_(size), partials_(static_cast<Value*>(workspace)) {}

  __device__ std::int64_t index() const { return static_cast<int>(blockIdx.x) / size_; }
  __device__ int count() const { return static_cast<int>(gridDim.x) / size_; }
  __device__ int rank() const { return static_cast<int>(blockIdx.x) % size_; }

  __device__ void put(Value mine, int turn) const {
    mine = warp_fold(mine, Join());
    Value* slots = slots_[turn % 2];
    if (lane() == 0) slots[threadIdx.x / kWarp] = mine;
    __syncthreads();
    if (threadIdx.x >= kWarp) return;
    mine = warp_fold(lane() < blockDim.x / kWarp ? slots[lane()] : Join::identity(), Join());
    if (threadIdx.x > 0) return;
    partials(turn)[blockIdx.x] = mine;
    if (turn > 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter()) : "memory");
    } else if (rank() == 0) {
      *counter() = 0;
    }
  }

  // The first time the whole grid meets, which makes the counters known to be zero; after that each team
  // goes at its own pace, so that one reads while another writes.
  __device__ Value get(int turn) const {
    if (turn == 0) {
      cooperative_groups::this_grid().sync();
    } else {
      const auto everybody = static_cast<unsigned>(turn * size_);
      unsigned here = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(here)
                     : "l"(counter())
                     : "memory");
      } while (here < everybody);
    }
    const Value* of_team = partials(turn) + index() * size_;
    Value total = Join::identity();
#pragma unroll 1  // registers hold a row meanwhile
    for (int i = static_cast<int>(lane()); i < size_; i += kWarp) total = Join()(total, of_team[i]);
    return warp_fold(total, Join());
  }

 private:
  __device__ static unsigned lane() { return threadIdx.x % kWarp; }
  __device__ Value* partials(int turn) const { return partials_ + (turn % 2) * gridDim.x; }
  __device__ unsigned* counter() const {
    return reinterpret_cast<unsigned*>(partials_ + 2 * gridDim.x) + index();
  }

  Slots& slots_;
  int size_;
  Value* partials_;
};

template <class Row>
__global__ __launch_bounds__(gpu_rows::kBlockThreads, gpu_rows::kBlocksAtOnce) void grid_pipeline(
    const __grid_constant__ typename Row::Args args, void* workspace, int split, int size, int) {
  using Team = GridTeam<typename Row::Join>;
  __shared__ typename Team::Slots slots;
  pipeline_rows<Row>(args, Team(slots, workspace, split), size);
}

template <class Row, bool Long>
__global__ __launch_bounds__(gpu_rows::kBlockThreads,
                             gpu_rows::kBlocksAtOnce) void grid_stream(const __grid_constant__
                                                                       typename Row::Args args,
                                                                       void* workspace, int split,
                                                                       int size, int depth) {
  using Team = GridTeam<typename Row::Join>;
  __shared__ typename Team::Slots slots;
  stream_rows<Row, Long>(args, Team(slots, workspace, split), size, depth);
}

// Rows of any kind, without a row that is asked for ahead.
template <class Row>
__global__ __launch_bounds__(gpu_rows::kBlockThreads,
                             gpu_rows::kBlocksAtOnce) void grid_rows(const __grid_constant__
                                                                     typename Row::Args args,
                                                                     void* workspace, int split,
                                                                     int size, int staged) {
  using Team = GridTeam<typename Row::Join>;
  extern __shared__ __align__(16) std::byte stage[];
  __shared__ typename Team::Slots slots;
  const Team team(slots, workspace, split);
  std::int64_t at = args.first_row + team.index();
  for (int turn = 0; at < args.end_row; ++turn, at += team.count()) {
    const Row row(args, at);
    Chunk<Row, gpu_rows::kAnyPacks, true> chunk(
        row, size, team.rank(), reinterpret_cast<typename Row::Held*>(stage), staged);
    team.put(chunk.fold(), turn);
    const auto total = team.get(turn);
    chunk.finish(total);
    if (team.rank() == 0 && threadIdx.x == 0) row.conclude(total);
  }
}

// All blocks on the GPU at once, so that they can wait for each other.
template <class Rows>
Status run_grid(const RowArgs& args, const Plan& plan) {
  return with_row<Rows>(args, plan, [&]<class Row>(Type<Row>) {
    const auto launch = [&](auto* kernel, int held) {
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
                         static_cast<void*>(args.workspace), plan.split, plan.chunk, held);
      return launch_status(plan.variant);
    };
    if constexpr (kTakesAny<Row>) {
      return launch(grid_rows<Row>,
                    static_cast<int>(plan.shared_bytes / sizeof(typename Row::Held)));
    } else {
      if (plan.packs == kPipelinePacks<Row>) return launch(grid_pipeline<Row>, 0);
      return plan.looped ? launch(grid_stream<Row, true>, depth_of<Row>(plan))
                         : launch(grid_stream<Row, false>, depth_of<Row>(plan));
    }
  });
}

}  // namespace onepass
