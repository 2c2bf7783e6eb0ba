// The merge across a block of 1 to 32 whole warps: one barrier.
#pragma once

#include "merge/warp.cuh"

namespace onepass {

// Each warp folds in registers and writes its result to a slot; after a barrier every warp folds
// all slots.
template <class Join, int MostWarps = 32>
class BlockFold {
 public:
  using Value = typename Join::Value;
  using Scratch = Value[MostWarps];

  __device__ explicit BlockFold(Scratch& of_warp) : of_warp_(of_warp) {}

  // Returns the fold of all threads' values to every thread. The slots may be reused at once.
  __device__ Value all(Value mine, Join join = {}) const {
    mine = once(mine, join);
    __syncthreads();
    return mine;
  }

  // Like all(), without the final barrier: synchronise before reusing the slots.
  __device__ Value once(Value mine, Join join = {}) const {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    mine = warp_fold(mine, join);
    if (lane == 0) of_warp_[warp] = mine;
    __syncthreads();
    return warp_fold(lane < blockDim.x / 32 ? of_warp_[lane] : Join::identity(), join);
  }

 private:
  Scratch& of_warp_;
};

using BlockMerge = BlockFold<Merge<float>>;

}  // namespace onepass
