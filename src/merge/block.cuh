// The merge across a block, in three ways: by one thread, as a tree in shared memory, and as warps
// that meet once. Blocks are whole warps, of any number up to 32.
#pragma once

#include "merge/warp.cuh"

namespace onepass {

// Thread 0 folds what everybody put down. `slots` holds a value a thread.
template <class Join>
__device__ inline typename Join::Value serial_fold(typename Join::Value* slots,
                                                   typename Join::Value mine, Join join) {
  slots[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned i = 1; i < blockDim.x; ++i) slots[0] = join(slots[0], slots[i]);
  }
  __syncthreads();
  const typename Join::Value all = slots[0];
  __syncthreads();  // the slots are free again
  return all;
}

// The upper half joins the lower until one is left; with an odd number the middle one waits.
template <class Join>
__device__ inline typename Join::Value tree_fold(typename Join::Value* slots,
                                                 typename Join::Value mine, Join join) {
  slots[threadIdx.x] = mine;
  for (unsigned left = blockDim.x; left > 1;) {
    __syncthreads();
    const unsigned half = (left + 1) / 2;
    if (threadIdx.x < left - half) {
      slots[threadIdx.x] = join(slots[threadIdx.x], slots[threadIdx.x + half]);
    }
    left = half;
  }
  __syncthreads();
  const typename Join::Value all = slots[0];
  __syncthreads();
  return all;
}

// Warps fold in registers and meet once, in a slot a warp; then each folds the slots for itself.
template <class Join, int MostWarps = 32>
class BlockFold {
 public:
  using Value = typename Join::Value;
  using Scratch = Value[MostWarps];

  __device__ explicit BlockFold(Scratch& of_warp) : of_warp_(of_warp) {}

  // The slots are free again afterwards.
  __device__ Value all(Value mine, Join join = {}) const {
    mine = once(mine, join);
    __syncthreads();
    return mine;
  }

  // They are not.
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
