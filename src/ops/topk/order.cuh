// Keys in order.
#pragma once

#include "core/shared.cuh"
#include "merge/sort.cuh"
#include "merge/warp.cuh"
#include "ops/topk/key.cuh"

namespace onepass {

inline constexpr int kCountedKeys = 128;  // so few are ordered by counting,
inline constexpr int kRankedKeys = 512;   // and so few by runs

// Calls put(place, key) with each of n keys: its place is how many are larger, which Each neighbours count together, AtOnce keys
// at a time. By the first Each · n threads; keys lie at a multiple of 16 bytes, with zeros behind them up to a multiple of
// AtOnce · Each.
template <int Each, int AtOnce = 8, class Put>
__device__ inline void place_keys(const Key* keys, int n, Put put) {
  struct alignas(16) Two {
    Key a, b;
  };
  const int i = static_cast<int>(threadIdx.x) / Each;
  const int own = static_cast<int>(threadIdx.x) % Each;
  const Key key = i < n ? keys[i] : 0;
  int count[8] = {};  // for themselves, so that none waits for another
#pragma unroll 1
  for (int j = 2 * own; j < n; j += AtOnce * Each) {
    Two two[AtOnce / 2];
#pragma unroll
    for (int a = 0; a < AtOnce / 2; ++a) {
      two[a] = *reinterpret_cast<const Two*>(keys + j + a * 2 * Each);
    }
#pragma unroll
    for (int a = 0; a < AtOnce / 2; ++a) {
      count_if_larger(count[2 * a % 8], two[a].a, key);
      count_if_larger(count[2 * a % 8 + 1], two[a].b, key);
    }
  }
  int larger = ((count[0] + count[1]) + (count[2] + count[3])) +
               ((count[4] + count[5]) + (count[6] + count[7]));
  larger = group_fold(larger, Add<int>(), Each);
  if (i < n && own == 0) put(larger, key);
}

// Keys that a block has in shared memory, the largest first: in one of the two places; which. Few: a key's place is how many
// are larger, several threads counting for each. More: warps sort runs of 32, and how many are larger is found in each of
// them. Many go through a network, for which `from` has room up to a power of two.
__device__ inline Key* order_keys(Key* from, Key* to, int n) {
  assume_shared(from);
  assume_shared(to);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  __syncthreads();
  if (n > kRankedKeys) {
    int size = 2;
    while (size < n) size *= 2;
#pragma unroll 1
    for (int i = n + thread; i < size; i += threads) from[i] = 0;
    sort_descending(from, size);
    return from;
  }
  if (n <= kCountedKeys) {
    int shift = 0;  // 2 to this power threads count for a key
    while (shift < 5 && n << shift <= threads / 2) ++shift;
    const int own = thread & ((1 << shift) - 1);
    constexpr int kAtOnce = 8;  // keys that are looked at
#pragma unroll 1
    for (int first = 0; first < n; first += threads >> shift) {
      const int i = first + (thread >> shift);
      const Key key = i < n ? from[i] : 0;
      int larger = 0;
#pragma unroll 1
      for (int j = own; j < n; j += kAtOnce << shift) {
#pragma unroll
        for (int a = 0; a < kAtOnce; ++a) {
          const int at = j + (a << shift);
          larger += (at < n ? from[at] : 0) > key ? 1 : 0;
        }
      }
      for (int apart = 1 << shift >> 1; apart > 0; apart /= 2) {
        larger += __shfl_xor_sync(0xFFFFFFFFU, larger, apart);
      }
      if (i < n && own == 0) to[larger] = key;
    }
    __syncthreads();
    return to;
  }
  const int runs = (n + 31) / 32;
#pragma unroll 1
  for (int i = thread; i < runs * 32; i += threads) {
    from[i] = warp_sort_descending(i < n ? from[i] : 0);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < n; i += threads) {
    const Key key = from[i];
    int place = 0;
#pragma unroll 4  // of runs that are searched at once
    for (int r = 0; r < runs; ++r) place += larger_in_run(from + r * 32, key);
    to[place] = key;
  }
  __syncthreads();
  return to;
}

}  // namespace onepass
