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

// Each of `lanes` neighbours, a power of two, brings a value and leaves with the fold of
// all: two lanes that meet compute the same bits, because the operators commute. All groups
// of the warp at once.
template <class Join>
__device__ inline typename Join::Value group_fold(typename Join::Value mine, Join join, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    mine = join(mine, exchange(mine, distance));
  }
  return mine;
}

// States meet more cheaply: first all maxima, then every state is brought to the common one, once,
// and then only sums are left to add.
template <class T>
__device__ inline State<T> group_fold(State<T> mine, Merge<T>, int lanes) {
  T m = mine.m;
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    m = larger_or_nan(m, exchange(m, distance));
  }
  return {m, group_fold(mine.d * rescale(m, mine.m), Add<T>(), lanes)};
}

// The same among a whole warp.
template <class Join>
__device__ inline typename Join::Value warp_fold(typename Join::Value mine, Join join) {
  return group_fold(mine, join, 32);
}

}  // namespace onepass
