// Keys in order.
#pragma once

#include "core/cuda/shared.cuh"
#include "merge/sort.cuh"
#include "merge/warp.cuh"
#include "merge/warp_rows.cuh"
#include "ops/select/gpu/limit.cuh"
#include "rows/packs.hpp"

namespace onepass {

inline constexpr int kCountedKeys = 128;  // so few are ordered by counting,
inline constexpr int kRankedKeys = 512;   // and so few by runs or bins

// Calls put(place, key) with each of n keys: its place is how many are larger, which Each
// neighbours count together, AtOnce keys at a time. By the first Each · n threads; keys lie at a
// multiple of 16 bytes, with zeros behind them up to a multiple of AtOnce · Each.
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

// Few keys that a block has in shared memory, the largest first, by counting: a key's place is how
// many are larger, and several threads count for each.
__device__ inline Key* order_by_counts(const Key* from, Key* to, int n) {
  assume_shared(from);
  assume_shared(to);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  __syncthreads();
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

// Any number of them: in one of the two places; which. More than a few: warps sort runs of 32, and
// how many are larger is found in each of them. Many go through a network, for which `from` has
// room up to a power of two.
__device__ inline Key* order_keys(Key* from, Key* to, int n) {
  if (n <= kCountedKeys) return order_by_counts(from, to, n);
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

// Up to kRankedKeys keys of a block by their values. Bins are more than keys, so that
// those of one are few: a key's place is how many are in bins before its own, and how many
// of its own are larger.
struct BinnedKeys {
  static constexpr int kBins = 1024;
  static constexpr int kAtOnce = 4;  // keys that are looked at

  Key ordered[kRankedKeys];
  Key together[kRankedKeys + kAtOnce];  // those of a bin side by side; zeros behind them
  int ends[kBins];                      // of the bins, in it
  int of_warps[kWarp];
  unsigned range[4];  // of words, and of what is below them: ~least, largest
};

// The largest first. `step`: how far apart the words of different values are, at least; values
// that are alike are told apart by their indices. `binned`: shared memory that is free once
// all have come here.
__device__ inline Key* order_by_bins(const Key* keys, int n, float step, BinnedKeys& binned) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  constexpr int kBins = BinnedKeys::kBins;
  assume_shared(keys);
  assume_shared(&binned);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int lane = thread % kWarp;
  const auto each = [&](auto body) {
#pragma unroll 1
    for (int i = thread; i < n; i += threads) body(i);
  };
  const auto lower = [](Key key) { return static_cast<unsigned>(key); };

  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < kBins; i += threads) binned.ends[i] = 0;
  if (thread < 4) binned.range[thread] = 0;
  if (thread < BinnedKeys::kAtOnce) binned.together[n + thread] = 0;
  __syncthreads();
  unsigned range[4] = {};
  each([&](int i) {
    const Key key = keys[i];
    range[0] = max(range[0], ~word_of(key)), range[1] = max(range[1], word_of(key));
    range[2] = max(range[2], ~lower(key)), range[3] = max(range[3], lower(key));
  });
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    range[i] = __reduce_max_sync(kAll, range[i]);
    if (lane == i) atomicMax(&binned.range[i], range[i]);
  }
  __syncthreads();

  const unsigned highest = binned.range[1], last = binned.range[3];
  const float of_values = static_cast<float>(highest - ~binned.range[0]) + step;
  const float of_indices = static_cast<float>(last - ~binned.range[2]) + 1;
  const float scale = kBins / of_values;
  const float index_scale = 0.999F * step / of_indices;  // less than a step, however it is rounded
  const auto bin = [&](Key key) {
    const float from_highest = fmaf(static_cast<float>(last - lower(key)), index_scale,
                                    static_cast<float>(highest - word_of(key)));
    return min(static_cast<int>(from_highest * scale), kBins - 1);
  };
  each([&](int i) { atomicAdd(&binned.ends[bin(keys[i])], 1); });
  __syncthreads();

  // Where each begins; a thread has some neighbours.
  const int count = (kBins + threads - 1) / threads;
  const int begin = min(thread * count, kBins);
  const int end = min(begin + count, kBins);
  int own = 0;
#pragma unroll 1
  for (int b = begin; b < end; ++b) own += binned.ends[b];
  const int until = sum_until(own);
  if (lane == kWarp - 1) binned.of_warps[thread / kWarp] = until;
  __syncthreads();
  const int of_warp = lane < thread / kWarp ? binned.of_warps[lane] : 0;
  int before = __reduce_add_sync(kAll, of_warp) + until - own;
#pragma unroll 1
  for (int b = begin; b < end; ++b) {
    const int in_bin = binned.ends[b];
    binned.ends[b] = before;
    before += in_bin;
  }
  __syncthreads();

  each([&](int i) { binned.together[atomicAdd(&binned.ends[bin(keys[i])], 1)] = keys[i]; });
  __syncthreads();
  each([&](int i) {
    const Key key = binned.together[i];
    const int b = bin(key);
    int place = b == 0 ? 0 : binned.ends[b - 1];
    const int end_of_bin = binned.ends[b];
#pragma unroll 1
    for (int j = place; j < end_of_bin; j += BinnedKeys::kAtOnce) {
#pragma unroll
      for (int a = 0; a < BinnedKeys::kAtOnce; ++a) {  // those behind the bin are smaller
        count_if_larger(place, binned.together[j + a], key);
      }
    }
    binned.ordered[place] = key;
  });
  __syncthreads();
  return binned.ordered;
}

}  // namespace onepass
