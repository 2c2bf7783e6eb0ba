// The merge across a block as 01 to 03 have it, before warps exchange registers: by one thread, and
// as a tree. Both leave the fold of all with every thread, and the slots free again.
#pragma once

namespace onepass::ops::softmax {

// Thread 0 folds what all threads put down. `slots` holds a value per thread.
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

}  // namespace onepass::ops::softmax
