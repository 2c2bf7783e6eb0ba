// The merge across a thread-block cluster, whose blocks run together and can access each other's
// shared memory. Every warp sends its value to a slot in every block, and folds the slots of its
// own block once they are filled. Before sm_90, which has no clusters, a cluster is one block.
#pragma once

#include <cstdint>

#include "core/cuda/mbarrier.cuh"
#include "merge/block.cuh"

namespace onepass {

inline constexpr int kMostCluster = 16;

// Whether this architecture has clusters. Kernels that need them have no body otherwise.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasClusters = true;
#else
inline constexpr bool kHasClusters = false;
#endif

// The blocks of a cluster. Each can read the others' shared memory between two calls of meet().
namespace cluster {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline int size() { return static_cast<int>(__clusterSizeInBlocks()); }
__device__ inline int rank() { return static_cast<int>(__clusterRelativeBlockRank()); }
__device__ inline std::int64_t index() {
  unsigned index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

// A barrier of all threads of all blocks, which makes their writes visible to each other.
__device__ inline void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// No block may send to a block that has not begun. Each block announces that it has begun, loads
// its row, and waits for the others before it sends its first value. The announcement is relaxed,
// because a release would delay the loads; initialising a barrier in shared memory has a fence of
// its own.
__device__ inline void say_begun() { asm volatile("barrier.cluster.arrive.relaxed.aligned;"); }
__device__ inline void wait_for_others() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The same address in another block's shared memory.
template <class T>
__device__ inline const T* of_block(const T* place, int rank) {
  return static_cast<const T*>(__cluster_map_shared_rank(place, static_cast<unsigned>(rank)));
}

#else

__device__ inline int size() { return 1; }
__device__ inline int rank() { return 0; }
__device__ inline std::int64_t index() { return blockIdx.x; }
__device__ inline void meet() { __syncthreads(); }
template <class T>
__device__ inline const T* of_block(const T* place, int) {
  return place;
}

#endif

}  // namespace cluster

// For blocks of up to 16 warps. all() may be called once.
template <class Join>
class ClusterFold {
 public:
  using Value = typename Join::Value;
  struct Scratch {
    Value slots[kMostCluster * 16];
    Mbarrier filled;
  };

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

  __device__ explicit ClusterFold(Scratch& scratch) : scratch_(scratch), size_(cluster::size()) {
    if (size_ == 1) return;
    if (threadIdx.x == 0) {
      expect_bytes(scratch_.filled, size_ * warps() * static_cast<int>(sizeof(Value)));
    }
    cluster::say_begun();
  }

  // Returns the fold of all threads' values. No block accesses another one afterwards, so each may
  // exit at once.
  __device__ Value all(Value mine) const {
    mine = warp_fold(mine, Join());
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (size_ == 1) {
      if (lane() == 0) scratch_.slots[warp] = mine;
      __syncthreads();
    } else {
      cluster::wait_for_others();
      if (lane() < size_) {
        send(mine, &scratch_.slots[rank() * warps() + warp], scratch_.filled, lane());
      }
      wait_for_bytes(scratch_.filled);
    }
    return of_slots(size_ * warps());
  }

#else

  __device__ explicit ClusterFold(Scratch& scratch) : scratch_(scratch) {}

  __device__ Value all(Value mine) const {
    mine = warp_fold(mine, Join());
    if (lane() == 0) scratch_.slots[threadIdx.x / 32] = mine;
    __syncthreads();
    return of_slots(warps());
  }

#endif

  __device__ int size() const { return size_; }
  __device__ static int rank() { return cluster::rank(); }
  __device__ static std::int64_t index() { return cluster::index(); }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warps() { return static_cast<int>(blockDim.x / 32); }

  __device__ Value of_slots(int count) const {
    Value total = Join::identity();
    for (int i = lane(); i < count; i += 32) total = Join()(total, scratch_.slots[i]);
    return warp_fold(total, Join());
  }

  Scratch& scratch_;
  int size_ = 1;
};

}  // namespace onepass
