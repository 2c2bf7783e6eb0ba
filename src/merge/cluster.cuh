// The merge across a thread-block cluster: blocks that run together and reach each other's shared
// memory. Each leaves its value in everybody's slots, all meet once, and each folds its own slots.
// Where there are no clusters (before sm_90) a cluster is one block.
#pragma once

#include <cooperative_groups.h>

#include "merge/block.cuh"

namespace onepass {

inline constexpr int kMostCluster = 16;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline int cluster_rank() {
  return static_cast<int>(cooperative_groups::this_cluster().block_rank());
}
__device__ inline int cluster_size() {
  return static_cast<int>(cooperative_groups::this_cluster().num_blocks());
}
__device__ inline void cluster_arrive() { cooperative_groups::this_cluster().barrier_arrive(); }
__device__ inline void cluster_wait() { cooperative_groups::this_cluster().barrier_wait(); }
template <class Value>
__device__ inline Value* in_block(Value* mine, int rank) {
  return cooperative_groups::this_cluster().map_shared_rank(mine, rank);
}

#else

__device__ inline int cluster_rank() { return 0; }
__device__ inline int cluster_size() { return 1; }
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() {}
template <class Value>
__device__ inline Value* in_block(Value* mine, int) {
  return mine;
}

#endif

template <class Join>
class ClusterFold {
 public:
  using Value = typename Join::Value;
  struct Scratch {
    typename BlockFold<Join>::Scratch of_warp;
    Value of_block[kMostCluster];
  };

  // Nobody may write to a block that has not begun: the arrival is here, the wait before the first
  // write, and the loads of a row lie between.
  __device__ explicit ClusterFold(Scratch& scratch) : scratch_(scratch), size_(cluster_size()) {
    if (size_ > 1) cluster_arrive();
  }

  // Once: after it no block touches another any more, so each may end when it likes.
  __device__ Value all(Value mine, Join join = {}) const {
    mine = BlockFold<Join>(scratch_.of_warp).all(mine, join);
    if (size_ == 1) return mine;
    cluster_wait();
    if (static_cast<int>(threadIdx.x) < size_) {
      *in_block(&scratch_.of_block[cluster_rank()], static_cast<int>(threadIdx.x)) = mine;
    }
    cluster_arrive();
    cluster_wait();
    Value total = scratch_.of_block[0];
    for (int i = 1; i < size_; ++i) total = join(total, scratch_.of_block[i]);
    return total;
  }

 private:
  Scratch& scratch_;
  int size_;
};

}  // namespace onepass
