// The blocks of a row, in a cluster or all over the GPU, and how the one that answers comes to have what all of
// them selected.
#pragma once

#include "merge/cluster.cuh"
#include "merge/grid.cuh"
#include "ops/topk/choose.cuh"

namespace onepass::ops::topk {

// Where the blocks of a row leave what they selected: segments of a key that counts and so many keys. In a
// cluster they are in the first block's shared memory; on the grid in the workspace, which has for each row a
// ticket, and for each part a tally and a segment.
struct Meeting {
  std::byte* workspace = nullptr;
  int parts = 1;  // of the grid: blocks a row
  int room = 0;   // keys of a segment, with the one that counts
  std::int64_t rows = 0;

  __device__ unsigned* ticket(std::int64_t row) const {
    return reinterpret_cast<unsigned*>(workspace) + row;
  }
  __device__ Tally* tallies(std::int64_t row) const {
    return reinterpret_cast<Tally*>(workspace + gpu_choose::ticket_bytes(rows)) + row * parts;
  }
  __device__ Key* segment(std::int64_t row, int part) const {
    return reinterpret_cast<Key*>(tallies(rows)) + (row * parts + part) * room;
  }
};
static_assert(sizeof(Tally) == gpu_choose::kTallyBytes);

// A row's chosen keys, in the block that has them all.
struct Chosen {
  Tally total;
  Key* keys = nullptr;  // largest first
  int count = 0;        // K, or as many as there are above −inf
  bool mine = false;    // whether it is this block
};

// The blocks of a row, whichever way they meet.
class Team {
 public:
  struct Shared {
    ClusterFold<MergeTallies>::Scratch cluster;
    BlockFold<MergeTallies>::Scratch tallies;
    BestKeys::Shared best;
    Mbarrier gathered;
    bool is_last;
  };

  __device__ Team(Shared& shared, const Meeting& meeting)
      : shared_(with_barrier(shared)), meeting_(meeting), cluster_(shared.cluster) {
    const auto block = static_cast<int>(blockIdx.x);
    row_ = on_grid() ? block / meeting_.parts : cluster_.index();
    rank_ = on_grid() ? block % meeting_.parts : cluster_.rank();
  }

  __device__ bool on_grid() const { return meeting_.parts > 1; }
  __device__ int size() const { return on_grid() ? meeting_.parts : cluster_.size(); }
  __device__ int rank() const { return rank_; }
  __device__ std::int64_t row() const { return row_; }

  // The K largest of a row of which everybody has a part.
  template <class Row>
  __device__ Chosen choose(const Part<Row>& part, BestKeys& best, const Target& target,
                           bool ranks) const {
    if (!part.is_one_tile()) return choose_gathered(best, part.gather(best, target, ranks));
    Tally total;
    part.gather_once(best, target, ranks, [&](const Tally& mine) {
      total = cluster_.all(mine);
      cluster_.size() > 1 ? bound_by_cluster(best, mine) : best.bound(mine.largest);
    });
    return meet(*this, best, total);
  }

  // The same of what everybody has gathered already.
  __device__ Chosen choose_gathered(BestKeys& best, const Tally& mine) const {
    const Tally total = cluster_.all(mine);
    if (cluster_.size() > 1) {
      bound_by_cluster(best, mine);
    } else if (!best.few(best.count())) {
      best.bound(mine.largest);
    }
    return meet(*this, best, total);
  }

 private:
  // Before the cluster's first arrival: after it others may send.
  __device__ static Shared& with_barrier(Shared& shared) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const auto size = static_cast<int>(__clusterSizeInBlocks());
    if (size > 1 && threadIdx.x == 0) expect_senders(shared.gathered, size - 1);
#endif
    return shared;
  }

  // The fold left every warp's largest in this block's slots. Where they are too few, the block's own threads
  // have to do.
  __device__ void bound_by_cluster(BestKeys& best, const Tally& mine) const {
    const auto thread = static_cast<int>(threadIdx.x);
    const int warps = cluster_.size() * static_cast<int>(blockDim.x) / kWarp;
    const float slot =
        thread < warps ? shared_.cluster.slots[thread].largest : minus_infinity<float>();
    best.bound(warps >= best.k() ? slot : mine.largest);
  }

  // What comes after the row is read, for all ways to read it: called, not inlined, and with copies, so that
  // nobody's registers have to be in memory for it.
  __device__ __noinline__ static Chosen meet(Team team, BestKeys best, Tally total) {
    Chosen chosen{.total = total, .mine = true};
    if (team.on_grid()) {
      chosen.mine = team.meet_on_grid(best, chosen.total);
    } else if (team.cluster_.size() > 1) {
      chosen.mine = team.meet_in_cluster(best);
    }
    if (!chosen.mine) return chosen;
    int n = 0;
    chosen.keys = best.order(n);
    chosen.count = min(n, best.k());
    return chosen;
  }

  // A part's own segment, at the place that it has among all.
  __device__ int select(BestKeys& best, Key* segment) const {
    const int n = best.select(segment + 1, meeting_.room - 1);
    if (threadIdx.x == 0) segment[0] = static_cast<Key>(n);
    return n;
  }

  __device__ bool meet_in_cluster(BestKeys& best) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const auto thread = static_cast<int>(threadIdx.x);
    Key* mine = best.list() + rank() * meeting_.room;
    int n = best.count();
    const bool as_they_are = rank() != 0 && n < meeting_.room && best.few(n);
    if (!as_they_are) {
      n = select(best, mine);
      __syncthreads();
    }
    if (rank() != 0) {
      if (thread == 0) announce_bytes(shared_.gathered, (n + 1) * gpu_choose::kKeyBytes, 0);
      const Key* from = as_they_are ? best.keys() : mine + 1;
#pragma unroll 1
      for (int i = thread; i <= n; i += static_cast<int>(blockDim.x)) {
        send(i == 0 ? static_cast<Key>(n) : from[i - 1], mine + i, shared_.gathered, 0);
      }
      return false;
    }
    wait_for_bytes(shared_.gathered);
    best.absorb(best.list(), cluster_.size(), meeting_.room);
#endif
    return true;
  }

  // Who comes last has everything.
  __device__ bool meet_on_grid(BestKeys& best, Tally& total) const {
    const auto thread = static_cast<int>(threadIdx.x);
    select(best, meeting_.segment(row(), rank()));
    if (thread == 0) meeting_.tallies(row())[rank()] = total;
    __threadfence();
    __syncthreads();
    if (thread == 0) {
      shared_.is_last =
          atomicAdd(meeting_.ticket(row()), 1U) == static_cast<unsigned>(meeting_.parts) - 1;
    }
    __syncthreads();
    if (!shared_.is_last) return false;
    __threadfence();
    const GridFold<MergeTallies> grid(meeting_.tallies(0), meeting_.parts);
    total = grid.all(row(), BlockFold<MergeTallies>(shared_.tallies));
    best.absorb(meeting_.segment(row(), 0), meeting_.parts, meeting_.room);
    return true;
  }

  Shared& shared_;
  const Meeting& meeting_;
  ClusterFold<MergeTallies> cluster_;
  std::int64_t row_;
  int rank_;
};

}  // namespace onepass::ops::topk
