// The merge across a thread-block cluster: blocks that run together and reach each other's shared
// memory. Every warp leaves its value in a slot of every block, all meet once, and every warp folds the
// slots of its own block. Where there are no clusters (before sm_90) a cluster is one block.
#pragma once

#include <cstdint>

#include "merge/block.cuh"

namespace onepass {

inline constexpr int kMostCluster = 16;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// nvcc's own functions, which <cooperative_groups.h> wraps: that header takes three seconds to compile.
__device__ inline int cluster_rank() { return static_cast<int>(__clusterRelativeBlockRank()); }
__device__ inline int cluster_size() { return static_cast<int>(__clusterSizeInBlocks()); }
__device__ inline std::int64_t cluster_index() {
  unsigned index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ inline void cluster_arrive() { __cluster_barrier_arrive(); }
__device__ inline void cluster_wait() { __cluster_barrier_wait(); }
template <class Value>
__device__ inline Value* in_block(Value* mine, int rank) {
  return static_cast<Value*>(__cluster_map_shared_rank(mine, static_cast<unsigned>(rank)));
}

#else

__device__ inline int cluster_rank() { return 0; }
__device__ inline int cluster_size() { return 1; }
__device__ inline std::int64_t cluster_index() { return blockIdx.x; }
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() {}
template <class Value>
__device__ inline Value* in_block(Value* mine, int) {
  return mine;
}

#endif

// Blocks of up to 16 warps, as many turns as they like: in each everybody puts a value, and later gets the
// fold of all. What lies between the two hides the way that the values have to go.
template <class Join>
class ClusterFold {
 public:
  using Value = typename Join::Value;
  using Slots = Value[kMostCluster * 16];

  // Two sets of slots where there is more than one turn. Nobody may write to a block that has not begun:
  // the arrival is here, the wait before the first write, and the loads of a row lie between.
  __device__ explicit ClusterFold(Slots* sets) : sets_(sets), size_(cluster_size()) {
    if (size_ > 1) cluster_arrive();
  }

  // Turns take the sets alternately: who puts in a turn has got the one before, to which everybody has come
  // who had read what is overwritten now.
  __device__ void put(Value mine, int turn = 0) const {
    const auto warp = static_cast<int>(threadIdx.x / 32);
    mine = warp_fold(mine, Join());
    if (size_ == 1) {
      if (lane() == 0) sets_[turn % 2][warp] = mine;
    } else {
      if (turn == 0) cluster_wait();
      if (lane() < size_) {
        *in_block(&sets_[turn % 2][cluster_rank() * warps() + warp], lane()) = mine;
      }
      cluster_arrive();
    }
  }

  // After the last one no block touches another, so each may end when it likes.
  __device__ Value get(int turn = 0) const {
    if (size_ == 1) {
      __syncthreads();
    } else {
      cluster_wait();
    }
    Value total = Join::identity();
#pragma unroll 1  // registers hold a row meanwhile
    for (int i = lane(); i < size_ * warps(); i += 32) {
      total = Join()(total, sets_[turn % 2][i]);
    }
    return warp_fold(total, Join());
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warps() { return static_cast<int>(blockDim.x / 32); }

  Slots* sets_;
  int size_;
};

}  // namespace onepass
