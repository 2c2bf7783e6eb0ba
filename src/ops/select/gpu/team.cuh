// The blocks of a row, in a cluster or all over the GPU, and how the one that answers comes to have
// what all of them selected.
#pragma once

#include "merge/cluster.cuh"
#include "merge/grid.cuh"
#include "ops/select/gpu/select.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::select {

// Where the blocks of a row leave what they selected: segments of a key that counts and so many
// keys. In a cluster they are in the first block's shared memory; on the grid in the workspace,
// which has for each row a ticket, and for each part a tally and a segment.
struct Meeting {
  std::byte* workspace = nullptr;
  int parts = 1;  // of the grid: blocks per row
  int room = 0;   // keys of a segment, with the one that counts
  std::int64_t rows = 0;

  __device__ unsigned* ticket(std::int64_t row) const {
    return reinterpret_cast<unsigned*>(workspace) + row;
  }
  __device__ Tally* tallies(std::int64_t row) const {
    return reinterpret_cast<Tally*>(workspace + gpu_select::ticket_bytes(rows)) + row * parts;
  }
  __device__ Key* segment(std::int64_t row, int part) const {
    return reinterpret_cast<Key*>(tallies(rows)) + (row * parts + part) * room;
  }
};
static_assert(sizeof(Tally) == gpu_select::kTallyBytes);

// The blocks of a row, whichever way they meet.
class Team {
 public:
  struct Shared {
    BestKeys::Shared best;
    int found[2];
    Mbarrier heard, gathered, full[gpu_select::kMostStages];
    bool is_last;
  };

  // What a launch's memory is for (gpu_select::shared_bytes).
  struct Memory {
    std::byte* stages;
    Key* keys;
    int* found;
    Tally* tallies;  // of every warp of the row, in the first block
    Key* list;
    float* largest;  // of groups of lanes all over the cluster

    __device__ Memory(std::byte* memory, int stage_count, int packs) : stages(memory) {
      keys =
          reinterpret_cast<Key*>(stages + stage_count * threads() * gpu_select::tile_bytes(packs));
      found = reinterpret_cast<int*>(keys + BestKeys::room());
      tallies = reinterpret_cast<Tally*>(found + threads() * packs);
      auto* end = reinterpret_cast<Key*>(tallies + cluster::size() * warps());
      list = cluster::size() > 1 ? end : reinterpret_cast<Key*>(stages);
      largest = reinterpret_cast<float*>(end + BestKeys::room());
    }
  };

  __device__ Team(Shared& shared, const Memory& memory, const Meeting& meeting)
      : shared_(shared), memory_(memory), meeting_(meeting), size_(cluster::size()) {
    const auto block = static_cast<int>(blockIdx.x);
    row_ = on_grid() ? block / meeting_.parts : cluster::index();
    rank_ = on_grid() ? block % meeting_.parts : cluster::rank();
    if (size_ > 1) begin_cluster();
  }

  __device__ bool on_grid() const { return meeting_.parts > 1; }
  __device__ int size() const { return on_grid() ? meeting_.parts : size_; }
  __device__ int rank() const { return rank_; }
  __device__ std::int64_t row() const { return row_; }

  __device__ BestKeys best_of(int k) const { return {shared_.best, memory_.keys, memory_.list, k}; }

  // The K largest of a row of which each thread has a part.
  template <class Row>
  __device__ Selected select(const Part<Row>& part, BestKeys& best, const Target& target,
                             bool ranks) const {
    const Stages<Row> stages(shared_.full, memory_.stages, part.row(), part.begin(), part.end());
    if (thread() == 0) shared_.found[0] = 0;
    __syncthreads();
    part.gather(best, stages, {memory_.found, shared_.found}, target, ranks,
                [&](const Tally& mine, float largest) { hear(best, mine, largest); });
    return meet(*this, best);
  }

  // The same of what all threads have offered already.
  __device__ Selected select_offered(BestKeys& best, const Tally& mine, float largest) const {
    hear(best, mine, largest);
    return meet(*this, best);
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static int warps() { return threads() / kWarp; }

  // Leaves the warp's tally where the row is answered, and raises the limit by the largest that
  // the row's threads have seen. In a cluster of n blocks n neighbours of a block bring one
  // value, so that every block gets one for each of its threads: a lane sends its group's to
  // one of the blocks.
  __device__ void hear(BestKeys& best, const Tally& mine, float largest) const {
    const int lane = thread() % kWarp;
    const Tally tally = group_fold(mine, MergeTallies(), kWarp);
    Tally* slot = &memory_.tallies[(size_ > 1 ? rank_ * warps() : 0) + thread() / kWarp];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (size_ > 1) {
      cluster::wait_for_others();
      largest = onepass::group_fold(largest, Largest<float>(), size_);
      const int group = (rank_ * threads() + thread()) / size_;
      send(largest, &memory_.largest[group], shared_.heard, lane % size_);
      if (rank_ != 0 && lane == 0) send(tally, slot, shared_.gathered, 0);
      wait_for_bytes(shared_.heard);
      largest = memory_.largest[thread()];
    }
#endif
    if (rank_ == 0 || size_ == 1) {
      if (lane == 0) *slot = tally;
    }
    best.bound(largest);
  }

  __device__ void begin_cluster() const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (thread() == 0) {
      expect_bytes(shared_.heard, threads() * static_cast<int>(sizeof(float)));
      expect_senders(shared_.gathered, size_ - 1);
    }
    cluster::say_begun();
#endif
  }

  // The block's own slots, once no thread needs what its warps left there.
  __device__ BlockFold<MergeTallies>::Scratch& of_block() const {
    return *reinterpret_cast<BlockFold<MergeTallies>::Scratch*>(memory_.tallies);
  }

  __device__ Tally of_warps() const {
    Tally total = MergeTallies::identity();
    for (int i = thread() % kWarp; i < size_ * warps(); i += kWarp) {
      total = MergeTallies()(total, memory_.tallies[i]);
    }
    return group_fold(total, MergeTallies(), kWarp);
  }

  // What comes after the row is read, for all ways to read it: called, not inlined, and with
  // copies, so that no caller's registers have to be in memory for it.
  __device__ __noinline__ static Selected meet(Team team, BestKeys best) {
    assume_shared(&team.shared_);
    assume_shared(team.memory_.tallies);
    best.assume_shared();
    Selected selected{.mine = true};
    __syncthreads();
    if (team.size_ > 1) selected.mine = team.meet_in_cluster(best);
    if (!selected.mine) return selected;
    selected.total = team.of_warps();
    if (team.on_grid()) selected.mine = team.meet_on_grid(best, selected.total);
    if (!selected.mine) return selected;
    int n = 0;
    selected.keys = best.order(n);
    selected.count = min(n, best.k());
    return selected;
  }

  // A part's own segment, at the place that it has among all.
  __device__ int select(BestKeys& best, Key* segment) const {
    const int n = best.select(segment + 1, meeting_.room - 1);
    if (thread() == 0) segment[0] = static_cast<Key>(n);
    return n;
  }

  __device__ bool meet_in_cluster(BestKeys& best) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    Key* mine = best.list() + rank() * meeting_.room;
    int n = best.count();
    const bool as_they_are = n < meeting_.room && best.few(n);
    if (!as_they_are) {
      n = select(best, mine);
      __syncthreads();
    }
    if (rank() != 0) {
      if (thread() == 0) {
        announce_bytes(shared_.gathered,
                       (n + 1) * gpu_select::kKeyBytes + warps() * gpu_select::kTallyBytes, 0);
      }
      const Key* from = as_they_are ? best.keys() : mine + 1;
#pragma unroll 1
      for (int i = thread(); i <= n; i += threads()) {
        send(i == 0 ? static_cast<Key>(n) : from[i - 1], mine + i, shared_.gathered, 0);
      }
      return false;
    }
    wait_for_bytes(shared_.gathered);
    if (!as_they_are) best.restart();
    const int first = as_they_are ? 1 : 0;
    best.absorb(best.list() + first * meeting_.room, size_ - first, meeting_.room);
#endif
    return true;
  }

  // Who comes last has everything.
  __device__ bool meet_on_grid(BestKeys& best, Tally& total) const {
    select(best, meeting_.segment(row(), rank()));
    if (thread() == 0) meeting_.tallies(row())[rank()] = total;
    __threadfence();
    __syncthreads();
    if (thread() == 0) {
      shared_.is_last =
          atomicAdd(meeting_.ticket(row()), 1U) == static_cast<unsigned>(meeting_.parts) - 1;
    }
    __syncthreads();
    if (!shared_.is_last) return false;
    __threadfence();
    const GridFold<MergeTallies> grid(meeting_.tallies(0), meeting_.parts);
    total = grid.all(row(), BlockFold<MergeTallies>(of_block()));
    best.restart();
    best.absorb(meeting_.segment(row(), 0), meeting_.parts, meeting_.room);
    return true;
  }

  Shared& shared_;
  Memory memory_;
  const Meeting& meeting_;
  int size_;  // of the cluster
  std::int64_t row_;
  int rank_;
};

}  // namespace onepass::ops::select
