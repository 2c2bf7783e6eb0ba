// The merge across a warp, or an aligned part of it: exchanges of registers, no memory.
#pragma once

#include "merge/operators.hpp"
#include "merge/thread.cuh"

namespace onepass {

template <class T>
__device__ inline T exchange(T value, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, distance);
}

template <class T>
__device__ inline State<T> exchange(State<T> value, int distance) {
  return {exchange(value.m, distance), exchange(value.d, distance)};
}

// Returns to each lane the fold over its group of `lanes` neighbours, a power of two, for all
// groups of the warp at once. All lanes of a group get the same bits, because the operators
// commute.
template <class Join>
__device__ inline typename Join::Value group_fold(typename Join::Value mine, Join join, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    mine = join(mine, exchange(mine, distance));
  }
  return mine;
}

// Folding states is cheaper in two steps: first the maximum of all, to which each lane rescales its
// state once, then the sum.
template <class T>
__device__ inline State<T> group_fold(State<T> mine, Merge<T>, int lanes) {
  T m = mine.m;
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    m = larger_or_nan(m, exchange(m, distance));
  }
  return {m, group_fold(mine.d * rescale(m, mine.m), Add<T>(), lanes)};
}

// The fold over a whole warp.
template <class Join>
__device__ inline typename Join::Value warp_fold(typename Join::Value mine, Join join) {
  return group_fold(mine, join, 32);
}

}  // namespace onepass
