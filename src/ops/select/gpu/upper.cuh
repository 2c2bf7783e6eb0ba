// What at least K elements of a short row reach, by the lanes that hold it: of a few lists' largest
// elements the K-th.
#pragma once

#include "merge/warp.cuh"
#include "ops/select/gpu/limit.cuh"

namespace onepass::ops::select {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// The larger first, and a NaN before all.
__device__ inline void order(float& a, float& b) {
  const float larger = larger_or_nan(a, b);
  b = fminf(a, b);
  a = larger;
}

// Numbers that fall and then rise, or a turn of such, larger first.
template <int N>
__device__ inline void sort_bitonic(float (&x)[N]) {
#pragma unroll
  for (int apart = N / 2; apart > 0; apart /= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if ((i & apart) == 0) order(x[i], x[i + apart]);
    }
  }
}

// Of this lane and the one `distance` away, both in order: all, or as many as each has.
template <int N>
__device__ inline void join_all(const float (&mine)[N], int distance, float (&all)[2 * N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    all[i] = mine[i];
    all[2 * N - 1 - i] = exchange(mine[i], distance);
  }
  sort_bitonic(all);
}
template <int N>
__device__ inline void keep_larger(float (&mine)[N], int distance) {
  float other[N];
#pragma unroll
  for (int i = 0; i < N; ++i) other[i] = exchange(mine[N - 1 - i], distance);
#pragma unroll
  for (int i = 0; i < N; ++i) mine[i] = larger_or_nan(mine[i], other[i]);
}

// Of a row: its largest element, NaN if one is, and what at least K reach.
struct Upper {
  float largest, limit;
};

// Of eight lanes that have four numbers each. The limit is the eighth largest, or a little less, as
// of two lanes only the four largest count: 61 minima and maxima in place of 81.
__device__ inline Upper upper_eight(const float (&mine)[4]) {
  float four[4] = {mine[0], mine[1], mine[2], mine[3]};
  order(four[0], four[1]);
  order(four[3], four[2]);
  sort_bitonic(four);
  keep_larger(four, 1);
  sort_bitonic(four);
  float eight[8];
  join_all(four, 2, eight);
  keep_larger(eight, 4);
  float least = -minus_infinity<float>();
#pragma unroll
  for (int i = 0; i < 8; ++i) least = fminf(least, eight[i]);
  return {larger_or_nan(eight[0], eight[7]), least};
}

// Of 32 lanes that have two numbers each; the limit is the K-th largest.
__device__ inline Upper upper_k(int k, const float (&mine)[2]) {
  unsigned high = ordered(fmaxf(mine[0], mine[1]));
  unsigned low = ordered(fminf(mine[0], mine[1]));
  unsigned best = 0;
#pragma unroll 1
  for (int found = 0; found < k;) {
    best = __reduce_max_sync(kAllLanes, high);
    const bool own = high == best;
    found += __popc(__ballot_sync(kAllLanes, own));
    high = own ? low : high;
    low = own ? 0 : low;
  }
  float largest = larger_or_nan(mine[0], mine[1]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = larger_or_nan(largest, exchange(largest, distance));
  }
  return {largest, value_of_word(best)};
}

}  // namespace onepass::ops::select
