// Rows that all processors share: teams of as many blocks as a row needs, in one cooperative launch.
#pragma once

#include <cooperative_groups.h>

#include <cstring>

#include "merge/block.cuh"
#include "ops/row/stream.cuh"

namespace onepass {

// A team of any `size` blocks that run at the same time. They meet in the workspace: each block has a place
// in each of two sets, which turns take alternately, and the team's partials are gathered from there. Every
// 32 bits of a partial travel with the number of their turn in one store of 64, so that nobody needs a fence,
// which would also wait for the row that is on its way.
template <class Join>
class GridTeam {
 public:
  using Value = typename Join::Value;
  using Slots = typename BlockFold<Join>::Scratch;

  __device__ GridTeam(Slots& slots, void* workspace, int size)
      : block_(slots), size_(size), words_(static_cast<Word*>(workspace)) {}

  __device__ std::int64_t index() const { return static_cast<int>(blockIdx.x) / size_; }
  __device__ int count() const { return static_cast<int>(gridDim.x) / size_; }
  __device__ int rank() const { return static_cast<int>(blockIdx.x) % size_; }

  // Who puts in a turn has got the one before, to which everybody has come who had read what he overwrites.
  __device__ Value all(Value mine, int turn) const {
    mine = block_.all(mine);
    if (threadIdx.x == 0) put(mine, turn);
    // What an earlier launch left there is gone once the whole grid has met.
    if (turn == 0) cooperative_groups::this_grid().sync();
    const auto first = static_cast<int>(index()) * size_;
    Value theirs = Join::identity();
    for (int i = static_cast<int>(threadIdx.x); i < size_; i += static_cast<int>(blockDim.x)) {
      theirs = Join()(theirs, get(first + i, turn));
    }
    return block_.all(theirs);
  }

 private:
  using Word = unsigned long long;  // 32 bits of a value, and a turn above them
  static constexpr int kWords = sizeof(Value) / 4;

  __device__ Word* place(int block, int turn) const {
    return words_ + ((turn % 2) * static_cast<int>(gridDim.x) + block) * kWords;
  }

  __device__ void put(const Value& value, int turn) const {
    unsigned bits[kWords];
    memcpy(bits, &value, sizeof value);
    Word* mine = place(static_cast<int>(blockIdx.x), turn);
    Word* other = place(static_cast<int>(blockIdx.x), turn + 1);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      store(mine + w, static_cast<Word>(turn + 1) << 32 | bits[w]);
      if (turn == 0) store(other + w, 0);
    }
  }

  __device__ Value get(int block, int turn) const {
    const Word* theirs = place(block, turn);
    Word words[kWords];
    bool here = false;
    while (!here) {
      here = true;
#pragma unroll
      for (int w = 0; w < kWords; ++w) words[w] = load(theirs + w);
#pragma unroll
      for (int w = 0; w < kWords; ++w) here = here && words[w] >> 32 == static_cast<Word>(turn + 1);
    }
    unsigned bits[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) bits[w] = static_cast<unsigned>(words[w]);
    Value value;
    memcpy(&value, bits, sizeof value);
    return value;
  }

  __device__ static Word load(const Word* from) {
    Word word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from));
    return word;
  }
  __device__ static void store(Word* to, Word word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word));
  }

  BlockFold<Join> block_;
  int size_;
  Word* words_;
};

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

// Rows of any kind, without a row that is asked for ahead, in one block a processor: they take the registers.
template <class Row>
__global__ __launch_bounds__(gpu_rows::kBlockThreads,
                             1) void grid_rows(const __grid_constant__ typename Row::Args args,
                                               void* workspace, int split, int size, int staged) {
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
      return plan.looped ? launch(grid_stream<Row, true>, depth_of<Row>(plan))
                         : launch(grid_stream<Row, false>, depth_of<Row>(plan));
    }
  });
}

}  // namespace onepass
