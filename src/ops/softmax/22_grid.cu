// softmax/22_grid: a row over all processors, in one cooperative launch, for rows of any length.
//
// Idea    every block keeps its chunk of the row in shared memory, as it was stored, while all blocks
//         meet; what does not fit it reads again, last first, so that L2 has most of it.
// Versus  11_split_k_single: the chunk stays on chip. Rows go through the grid in waves.
// Bytes   x once as far as the shared memory of all blocks holds it (29 MB on an H200), y once.
// Limits  none: every op, dtype and option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include <cooperative_groups.h>

#include "dispatch/gpu_rows.hpp"
#include "merge/grid.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/ship.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {
namespace {

// One block's chunk of one row. A thread finds in the stage what it put there itself.
template <class In, class Out>
class Chunk {
 public:
  using Row = ForwardRow<In, Out>;
  using T = typename Row::T;

  __device__ Chunk(const Row& row, int split, int index, Pack<In>* stage, int staged)
      : row_(row), stage_(stage) {
    const int size = (row.packs() + split - 1) / split;
    begin_ = min(size * index, row.packs());
    end_ = min(begin_ + size, row.packs());
    kept_ = min(end_, begin_ + staged);
  }

  __device__ State<T> fold() const {
    State<T> mine = identity<T>();
    for (int i = first(); i < end_; i += kTile * step()) {
      Pack<In> packs[kTile];
      row_.fetch(i, step(), end_, packs);
#pragma unroll
      for (int p = 0; p < kTile; ++p) {
        if (i + p * step() < kept_) stage_[i + p * step() - begin_] = packs[p];
      }
      T z[kTile * Row::kLanes];
      row_.convert(packs, i, step(), end_, z);
      mine = merge(mine, row_.fold(z));
    }
    return mine;
  }

  // The tile that was read last, first.
  __device__ void finish(State<T> total) const {
    const int tiles = (end_ - first() + kTile * step() - 1) / (kTile * step());
    for (int t = tiles - 1; t >= 0; --t) {
      const int i = first() + t * kTile * step();
      Pack<In> packs[kTile];
#pragma unroll
      for (int p = 0; p < kTile; ++p) {
        const int at = i + p * step();
        packs[p] = at < kept_ ? stage_[at - begin_] : row_.fetch(at, end_);
      }
      T z[kTile * Row::kLanes];
      row_.convert(packs, i, step(), end_, z);
      const State<T> mine = row_.fold(z);
      row_.template finish<kTile>(i, step(), end_, z, mine, total);
    }
  }

 private:
  static constexpr int kTile = sizeof(In) == 2 ? 2 : 4;

  __device__ int first() const { return begin_ + static_cast<int>(threadIdx.x); }
  __device__ static int step() { return static_cast<int>(blockDim.x); }

  const Row& row_;
  Pack<In>* stage_;
  int begin_, end_;
  int kept_;  // end of what the stage holds
};

template <class In, class Out>
__global__ __launch_bounds__(gpu_rows::kBlockThreads, gpu_rows::kGridBlocks) void kernel(
    const __grid_constant__ RowArgs args, Reach reach, int split, int staged) {
  using Row = ForwardRow<In, Out>;
  using T = typename Row::T;
  extern __shared__ std::byte stage[];
  __shared__ typename BlockFold<Merge<T>>::Scratch scratch;
  const BlockFold<Merge<T>> block(scratch);
  const auto slots = static_cast<int>(gridDim.x) / split;  // rows a wave
  const int slot = static_cast<int>(blockIdx.x) / split;
  const int index = static_cast<int>(blockIdx.x) % split;
  auto* partials = reinterpret_cast<State<T>*>(args.workspace);
  for (std::int64_t wave = 0; args.first_row + wave * slots < args.end_row; ++wave) {
    // Waves take turns between two sets of partials, so that one barrier a wave is enough.
    const GridMerge<T> grid(partials + (wave % 2) * slots * split, split);
    const std::int64_t wanted = args.first_row + wave * slots + slot;
    const bool mine = slot < slots && wanted < args.end_row;
    const Row row(args, reach, mine ? wanted : args.end_row - 1);
    const Chunk<In, Out> chunk(row, split, index, reinterpret_cast<Pack<In>*>(stage), staged);
    if (mine) {
      const State<T> folded = block.all(chunk.fold());
      if (threadIdx.x == 0) grid.put(slot, index, folded);
    }
    cooperative_groups::this_grid().sync();
    if (mine) {
      const State<T> total = grid.all(slot, block);
      chunk.finish(total);
      if (index == 0 && threadIdx.x == 0) row.conclude(total);
    }
  }
}

struct Kernels {
  template <class In, class Out, int P>
  static constexpr auto get() {
    return kernel<In, Out>;
  }
};

}  // namespace

Status gpu_grid(const RowArgs& args, const Plan& plan) {
  return with_kernel<Kernels>(args, plan, [&](auto* kernel) {
    return launch_grid(kernel, plan, args, args, reach_of(args.space, args.logits.x), plan.split,
                       static_cast<int>(plan.shared_bytes / kPackBytes));
  });
}

}  // namespace onepass::ops::softmax
