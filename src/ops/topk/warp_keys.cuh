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

}  // namespace onepass::ops::topk
