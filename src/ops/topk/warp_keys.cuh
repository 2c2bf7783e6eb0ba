// The K largest of a row that one warp reads, in shared memory of the warp: what best.cuh is for a block, without barriers.
#pragma once

#include "dispatch/gpu_choose.hpp"
#include "merge/sort.cuh"
#include "merge/warp.cuh"
#include "ops/topk/key.cuh"

namespace onepass {

// An element is offered where its key is above the limit: at least K keys that are not below it are known to be there. What
// raises the limit: of the largest elements that groups of the row have shown, the K-th; and, where there is no room
// left, the keys themselves.
class WarpKeys {
 public:
  static constexpr int kRoom = gpu_choose::kStreamKeys;
  static constexpr int kOrdered = gpu_choose::kStreamOrdered;  // at most

  // By a whole warp, as everything that follows.
  __device__ WarpKeys(Key* keys, int k) : keys_(keys), k_(k), limit_(lowest_limit()) {}

  // Elements up to it need not be offered, if those with lower indices have been.
  __device__ float value() const { return value_of(limit_); }
  __device__ Key limit() const { return limit_; }

  // Each lane has what G groups of elements have shown.
  template <int G>
  __device__ void bound(const float (&largest)[G]) {
    const unsigned none = ordered(minus_infinity<float>());
    unsigned word[G];
    unsigned low = kAll;
    unsigned high = 0;
#pragma unroll
    for (int g = 0; g < G; ++g) {
      word[g] = ordered(largest[g]);
      low = word[g] == none ? low : min(low, word[g]);
      high = max(high, word[g]);
    }
    low = __reduce_min_sync(kAll, low);
    high = __reduce_max_sync(kAll, high);
    const auto from = [&](unsigned least) {
      int n = 0;
#pragma unroll
      for (int g = 0; g < G; ++g) n += word[g] >= least ? 1 : 0;
      return __reduce_add_sync(kAll, n);
    };
    int n = from(none + 1);
    while (n > k_ + k_ / 8 + 4 && low < high) {
      const unsigned middle = low + (high - low + 1) / 2;
      const int above = from(middle);
      if (above >= k_) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
    if (n >= k_) limit_ = max(limit_, just_below(low));
    if (count_ > kRoom / 2) keep();
  }

  // A lane's elements, a bit each, of which key_of_bit(b) is above the limit. The limit may rise on the way.
  template <class KeyOfBit>
  __device__ void offer(unsigned bits, KeyOfBit key_of_bit) {
#pragma unroll 1
    while (__any_sync(kAll, bits != 0)) {
      const Key key = bits == 0 ? 0 : key_of_bit(__ffs(static_cast<int>(bits)) - 1);
      const unsigned offering = __ballot_sync(kAll, key > limit_);
      if (count_ + __popc(offering) > kRoom) {
        cut();
        continue;
      }
      if (key > limit_) keys_[count_ + __popc(offering & lanes_before())] = key;
      count_ += __popc(offering);
      bits &= bits - 1;
    }
    __syncwarp();
  }

  // The largest, in order, at `to`, with room for kOrdered; how many there are, K or fewer.
  __device__ int order(Key* to) {
    keep();
    if (count_ > kOrdered) cut();
    const int runs = (count_ + kWarp - 1) / kWarp;
#pragma unroll 1
    for (int i = lane(); i < runs * kWarp; i += kWarp) {
      keys_[i] = warp_sort_descending(i < count_ ? keys_[i] : 0);
    }
    __syncwarp();
    // A key's place is its own in its run, and how many are larger in each of the others.
#pragma unroll 1
    for (int i = lane(); i < count_; i += kWarp) {
      const Key key = keys_[i];
      int place = lane();
#pragma unroll 1
      for (int r = 0; r < runs; ++r) {
        if (r != i / kWarp) place += larger_in_run(keys_ + r * kWarp, key);
      }
      if (key != 0) to[place] = key;
    }
    __syncwarp();
    return min(count_, k_);
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ static unsigned lanes_before() { return (1U << lane()) - 1; }

  // Throws away what is below the limit.
  __device__ void keep() {
    int kept = 0;
#pragma unroll 1
    for (int first = 0; first < count_; first += kWarp) {
      const Key key = first + lane() < count_ ? keys_[first + lane()] : 0;
      const unsigned keeping = __ballot_sync(kAll, key >= limit_);  // and all have read
      if (key >= limit_) keys_[kept + __popc(keeping & lanes_before())] = key;
      kept += __popc(keeping);
      __syncwarp();
    }
    count_ = kept;
  }

  // Keeps the K largest, or a few more.
  __device__ void cut() {
    limit_ = max(limit_, limit_of_cut(keys_, count_, k_));
    keep();
  }

  // Bisects the keys themselves. Called, not inlined: it is rare.
  __device__ __noinline__ static Key limit_of_cut(const Key* keys, int count, int k) {
    Key low = ~Key{0};
    Key high = 0;
    for (int i = lane(); i < count; i += kWarp) {
      low = min(low, keys[i]);
      high = max(high, keys[i]);
    }
    low = ~group_fold(~low, LargestKey(), kWarp);
    high = group_fold(high, LargestKey(), kWarp);
    for (int n = count; n > k + k / 4 && low < high;) {
      const Key middle = low + (high - low + 1) / 2;
      int above = 0;
      for (int i = lane(); i < count; i += kWarp) above += keys[i] >= middle ? 1 : 0;
      above = __reduce_add_sync(kAll, above);
      if (above >= k) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  Key* keys_;
  int k_;
  int count_ = 0;
  Key limit_;
};

}  // namespace onepass
