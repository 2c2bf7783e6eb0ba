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

// Everybody of `lanes` neighbours, a power of two, brings a value and leaves with the fold of all: two
// lanes that meet compute the same bits, because the operators commute. All groups of the warp at once.
template <class Join>
__device__ inline typename Join::Value group_fold(typename Join::Value mine, Join join, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    mine = join(mine, exchange(mine, distance));
  }
  return mine;
}

// What a group's lanes up to this one bring, added up.
template <int Lanes = 32, class T>
__device__ inline T sum_until(T mine) {
  const auto lane = static_cast<int>(threadIdx.x % Lanes);
#pragma unroll
  for (int apart = 1; apart < Lanes; apart *= 2) {
    const T other = __shfl_up_sync(0xFFFFFFFFU, mine, apart, Lanes);
    if (lane >= apart) mine += other;
  }
  return mine;
}

// States meet more cheaply: first all maxima, then every state is brought to the common one, once, and
// then only sums are left to add.
template <class T>
__device__ inline State<T> group_fold(State<T> mine, Merge<T>, int lanes) {
  T m = mine.m;
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    m = larger_or_nan(m, exchange(m, distance));
  }
  return {m, group_fold(mine.d * rescale(m, mine.m), Add<T>(), lanes)};
}

// Several rows at once, each exchange of one hidden behind those of the others.
template <class Value, int R, class Join>
__device__ inline void group_fold(Value (&mine)[R], Join join, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int r = 0; r < R; ++r) mine[r] = join(mine[r], exchange(mine[r], distance));
  }
}

template <class T, int R>
__device__ inline void group_fold(State<T> (&mine)[R], Merge<T>, int lanes) {
  T m[R];
#pragma unroll
  for (int r = 0; r < R; ++r) m[r] = mine[r].m;
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int r = 0; r < R; ++r) m[r] = larger_or_nan(m[r], exchange(m[r], distance));
  }
  T d[R];
#pragma unroll
  for (int r = 0; r < R; ++r) d[r] = mine[r].d * rescale(m[r], mine[r].m);
  group_fold(d, Add<T>(), lanes);
#pragma unroll
  for (int r = 0; r < R; ++r) mine[r] = {m[r], d[r]};
}

// The same among a whole warp.
template <class Join>
__device__ inline typename Join::Value warp_fold(typename Join::Value mine, Join join) {
  return group_fold(mine, join, 32);
}

}  // namespace onepass
