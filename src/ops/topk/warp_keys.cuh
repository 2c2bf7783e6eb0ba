// The K largest of a row that one warp reads, in shared memory of the warp: what best.cuh is for a block, without barriers.
#pragma once

#include "core/shared.cuh"
#include "dispatch/gpu_choose.hpp"
#include "merge/sort.cuh"
#include "merge/warp.cuh"
#include "ops/topk/key.cuh"

namespace onepass {

// An element is offered where its key is above the limit: at least K keys that are not below it are known to be there. What
// raises the limit: of the largest elements that groups of the row have shown, the K-th; and, where a lane has no
// room left, the keys themselves.
//
// A lane puts down what it finds itself. Its i-th key is at 32 i + lane, so that lanes with as many keys have them side by
// side.
template <int Each>
class WarpKeys {
 public:
  static constexpr int kEach = Each;  // of a lane, at most
  static constexpr int kRoom = kEach * kWarp;
  static constexpr int kOrdered = 8;  // of a lane, in the end

  // By a whole warp, as everything that follows.
  __device__ WarpKeys(Key* keys, int k) : keys_(keys + lane()), k_(k), limit_(lowest_limit()) {}

  // Elements up to it need not be offered, if those with lower indices have been.
  __device__ float value() const { return value_of(limit_); }

  // Whether every lane has room for as many as it has bits.
  __device__ bool has_room(unsigned bits) const {
    return !__any_sync(kAll, own() + __popc(bits) > kEach);
  }

  // What a group of elements has shown, of which `largest` is the largest. A NaN has shown nothing.
  __device__ static unsigned shown(float largest) {
    return ordered(largest == largest ? largest : minus_infinity<float>());
  }

  // Each lane has what G groups have shown.
  template <int G>
  __device__ void bound(const unsigned (&word)[G]) {
    const unsigned none = ordered(minus_infinity<float>());
    unsigned low = kAll;
    unsigned high = 0;
#pragma unroll
    for (int g = 0; g < G; ++g) {
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
    if (__any_sync(kAll, own() > kEach / 4 * 3)) keep();
  }

  // A lane's elements above the limit, a bit each. The limit may rise on the way: what is below it then goes later.
  template <class KeyOfBit>
  __device__ void offer(unsigned bits, KeyOfBit key_of_bit) {
    for (;;) {
      put(bits, key_of_bit);
      if (!__any_sync(kAll, bits != 0)) return;
      cut();
    }
  }

  // Those that are above the limit, side by side.
  __device__ Key* data() const { return keys_ - lane(); }
  __device__ int count() const { return __reduce_add_sync(kAll, own()); }
  __device__ void settle() {
    keep();
    spread();
  }
  // More of them, half of the room at most, behind those that lie side by side.
  __device__ void append(const Key* more, int n) {
    if (count() + n > kRoom) cut();
    const int before = count();
    for (int i = lane(); i < n; i += kWarp) data()[before + i] = more[i];
    __syncwarp();
    set_count(before + n);
  }
  __device__ void copy(Key* to) const {
    for (unsigned i = 0; i != end_; i += kWarp) to[i + lane()] = keys_[i];
  }
  // Keeps the K largest, or a few more, side by side.
  __device__ void cut() {
    const Kept kept = cut(*this);
    limit_ = kept.limit;
    set_own(kept.own);
  }

  // Of those that lie side by side the largest, in order, at `to`, with room for kOrdered a lane.
  __device__ void order(Key* to) {
    if (count() > kOrdered * kWarp) cut();
    __syncwarp();
    const int n = count();
    if (n <= 2 * kWarp) {
      sort<2>(to);
    } else if (n <= 4 * kWarp) {
      sort<4>(to);
    } else {
      sort<kOrdered>(to);
    }
    __syncwarp();
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  // Keys of the lane.
  __device__ int own() const { return static_cast<int>(end_ / kWarp); }
  __device__ void set_own(int n) { end_ = static_cast<unsigned>(n * kWarp); }
  // There are so many, side by side.
  __device__ void set_count(int n) { set_own((n - lane() + kWarp - 1) / kWarp); }

  // As far as there is room for it.
  template <class KeyOfBit>
  __device__ void put(unsigned& bits, KeyOfBit key_of_bit) {
#pragma unroll 1
    for (; bits != 0 && end_ < kEach * kWarp; bits &= bits - 1) {
      keys_[end_] = key_of_bit(static_cast<unsigned>(__ffs(static_cast<int>(bits)) - 1));
      end_ += kWarp;
    }
    __syncwarp();
  }

  // Throws away what is below the limit.
  __device__ void keep() {
    unsigned kept = 0;
#pragma unroll 1
    for (unsigned next = 0; next != end_; next += kWarp) {
      const Key key = keys_[next];
      if (key < limit_) continue;
      keys_[kept] = key;
      kept += kWarp;
    }
    end_ = kept;
    __syncwarp();
  }

  // As many to each lane, or one less.
  __device__ void spread() {
    const int own = this->own();
    Key mine[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine[i] = i < own ? keys_[kWarp * i] : 0;
    const int until = sum_until(own);
    const int n = __shfl_sync(kAll, until, kWarp - 1);
    Key* to = data() + (until - own);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i < own) to[i] = mine[i];
    }
    set_count(n);
    __syncwarp();
  }

  struct Kept {
    Key limit;
    int own;
  };
  // Bisects the keys themselves. Called, not inlined: it is rare.
  __device__ __noinline__ static Kept cut(WarpKeys of) {
    assume_shared(of.keys_);
    Key low = ~Key{0};
    Key high = 0;
    for (unsigned i = 0; i != of.end_; i += kWarp) {
      low = min(low, of.keys_[i]);
      high = max(high, of.keys_[i]);
    }
    __syncwarp();
    low = ~group_fold(~low, LargestKey(), kWarp);
    high = group_fold(high, LargestKey(), kWarp);
    for (int n = of.count(); n > of.k_ + of.k_ / 4 && low < high;) {
      const Key middle = low + (high - low + 1) / 2;
      int above = 0;
      for (unsigned i = 0; i != of.end_; i += kWarp) above += of.keys_[i] >= middle ? 1 : 0;
      __syncwarp();
      above = __reduce_add_sync(kAll, above);
      if (above >= of.k_) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
    if (of.count() > of.k_) of.limit_ = max(of.limit_, low);
    of.keep();
    of.spread();
    return {of.limit_, of.own()};
  }

  template <int N>
  __device__ void sort(Key* to) const {
    Key mine[N];
#pragma unroll
    for (int i = 0; i < N; ++i) mine[i] = i < own() ? keys_[kWarp * i] : 0;
    warp_sort_descending(mine);
#pragma unroll
    for (int i = 0; i < N; ++i) to[N * lane() + i] = mine[i];
  }

  Key* keys_;         // the lane's
  unsigned end_ = 0;  // 32 for each of them
  int k_;
  Key limit_;
};

}  // namespace onepass
