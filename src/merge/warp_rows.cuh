// The merge across a warp for several rows at once, and prefix sums over lanes.
#pragma once

#include "merge/warp.cuh"

namespace onepass {

// The inclusive prefix sum over a group's lanes.
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

// Folds several rows at once, so that their exchanges overlap.
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

}  // namespace onepass
