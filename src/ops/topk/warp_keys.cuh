// The K largest of what a warp has in its registers, K up to 32.
#pragma once

#include "merge/warp.cuh"
#include "ops/topk/key.cuh"

namespace onepass::ops::topk {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Where more reach the limit than there are lanes: the largest, K times.
template <int N>
__device__ __noinline__ Key one_by_one(const unsigned (&words)[N], int k) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  Key kept = 0;
  Key last = ~Key{0};
  for (int i = 0; i < k; ++i) {
    Key mine = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Key key = static_cast<Key>(words[j]) << 32 | ~static_cast<unsigned>(lane + j * kWarp);
      mine = key < last && key > mine ? key : mine;
    }
    last = warp_fold(mine, LargestKey());
    if (lane == i) kept = last;
  }
  return kept;
}

// The K largest words of a warp, N of them a lane, that of expert lane + 32 · j at j: lane i has the i-th key.
template <int N>
__device__ inline Key largest_keys(unsigned (&word)[N], int k, Key (&slots)[2 * kWarp]) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  unsigned mine = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) mine = max(mine, word[j]);
  unsigned limit = 0;
  for (int found = 0; found < k;) {
    limit = __reduce_max_sync(kAllLanes, mine);
    found += __popc(__ballot_sync(kAllLanes, mine == limit));
    if (mine == limit) mine = 0;
  }
  int count = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const unsigned reach = __ballot_sync(kAllLanes, word[j] >= limit);
    const int place = count + __popc(reach & ((1U << lane) - 1));
    // What does not reach it goes where nobody looks, which is cheaper than a branch.
    slots[word[j] >= limit && place < kWarp ? place : kWarp + lane] =
        static_cast<Key>(word[j]) << 32 | ~static_cast<unsigned>(lane + j * kWarp);
    count += __popc(reach);
  }
  __syncwarp();
  if (count > kWarp) return one_by_one(word, k);
  const Key key = lane < count ? slots[lane] : 0;
  int before = 0;
  for (int i = 0; i < count; ++i) before += slots[i] > key ? 1 : 0;
  __syncwarp();
  if (lane < count) slots[before] = key;
  __syncwarp();
  return slots[lane];
}

// A value of 16 bits and where it is, up to 65535, in one word that orders by value and then by index; 0 is below all.
template <class Stored>
__device__ inline unsigned packed(Stored x, unsigned index) {
  const unsigned bits = x.bits == 0x8000U ? 0 : x.bits;  // −0 counts as +0
  const unsigned word = bits ^ (0x8000U | (0U - (bits >> 15) & 0x7FFFU));
  return word << 16 | (0xFFFFU - index);
}
template <class Stored>
__device__ inline Stored packed_value(unsigned word) {
  const unsigned bits = word >> 16;
  return {static_cast<std::uint16_t>(bits ^ ((bits & 0x8000U) != 0 ? 0x8000U : 0xFFFFU))};
}
__device__ inline unsigned packed_index(unsigned word) { return 0xFFFFU - (word & 0xFFFFU); }

// Larger words first, by Batcher's odd-even merges.
template <int N>
__device__ inline void sort_falling(unsigned (&word)[N]) {
  static_assert((N & (N - 1)) == 0);
#pragma unroll
  for (int size = 1; size < N; size *= 2) {
#pragma unroll
    for (int step = size; step > 0; step /= 2) {
#pragma unroll
      for (int i = step % size; i + step < N; i += 2 * step) {
#pragma unroll
        for (int j = i; j < i + step; ++j) {
          if (j + step >= N || j / (2 * size) != (j + step) / (2 * size)) continue;
          const unsigned larger = max(word[j], word[j + step]);
          word[j + step] = min(word[j], word[j + step]);
          word[j] = larger;
        }
      }
    }
  }
}

// The K largest words of a warp, N of them a lane, no two alike but 0: lane i has the i-th. Lanes sort their own once; then
// the largest of all their first is taken, K times.
template <int N>
__device__ inline unsigned largest_words(unsigned (&word)[N], int k) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  sort_falling(word);
  unsigned kept = 0;
#pragma unroll 1
  for (int i = 0; i < k; ++i) {
    const unsigned best = __reduce_max_sync(kAllLanes, word[0]);
    if (lane == i) kept = best;
    const bool mine = word[0] == best;
#pragma unroll
    for (int j = 0; j + 1 < N; ++j) word[j] = mine ? word[j + 1] : word[j];
    word[N - 1] = mine ? 0 : word[N - 1];
  }
  return kept;
}

}  // namespace onepass::ops::topk
