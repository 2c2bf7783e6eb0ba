// The K largest of a row that one warp reads, in shared memory of the warp: what best.cuh is for a
// block, without barriers.
#pragma once

#include "core/cuda/shared.cuh"
#include "merge/sort.cuh"
#include "merge/warp.cuh"
#include "merge/warp_rows.cuh"
#include "ops/select/gpu/group_maxima.cuh"
#include "ops/select/gpu/limit.cuh"
#include "ops/select/gpu/plan.hpp"
#include "rows/packs.hpp"

namespace onepass {

// An element is offered where its key is above the limit: at least K keys that are not below it are
// known to be there. What raises the limit: of the largest elements that groups of the row have
// shown, the K-th; and, where a lane has no room left, the keys themselves.
//
// A lane puts down what it finds itself. Its i-th key is at 32 i + lane, so that lanes with as many
// keys have them side by side.
template <int Each>
class WarpKeys {
 public:
  static constexpr int kEach = Each;  // of a lane, at most
  static constexpr int kRoom = kEach * kWarp;
  static constexpr int kOrdered = 4;  // of a lane, in the end

  // By a whole warp, as everything that follows.
  __device__ WarpKeys(Key* keys, int k)
      : keys_(in_register(keys) + lane()), k_(k), limit_(lowest_limit()) {}

  // Elements up to it need not be offered, if those with lower indices have been.
  __device__ float value() const { return value_of(limit_); }

  // Whether every lane has room for as many as it has bits.
  __device__ bool has_room(const unsigned (&bits)[2]) const {
    return !__any_sync(kAll, own() + __popc(bits[0]) + __popc(bits[1]) >= kEach);
  }

  // Each lane has what some groups have shown.
  template <class Maxima>
  __device__ void bound(const Maxima& shown) {
    const auto from = [&](unsigned least) { return __reduce_add_sync(kAll, shown.from(least)); };
    // There is no need to look below the limit. All that are 0 count from −0 on.
    const unsigned above_limit = word_of(limit_) + 1;
    const unsigned low = max(__reduce_min_sync(kAll, shown.lowest()), above_limit);
    Bound bound{.low = low,
                .high = __reduce_max_sync(kAll, shown.highest()),
                .n = from(low == ordered(0) ? low - 1 : low)};
    bound.raise(k_, from);
    take(bound);
  }
  __device__ void take(const Bound& bound) {
    if (bound.n >= k_) limit_ = max(limit_, just_below(bound.low));
    if (__any_sync(kAll, own() > kEach / 4 * 3)) keep();
  }
  __device__ int k() const { return k_; }

  // A lane's elements above the limit, a bit each, in two words of which one is taken at a time:
  // what these wait for they wait for together. The limit may rise on the way: what is below it
  // then goes later.
  template <class KeyOfBit>
  __device__ void offer(unsigned (&bits)[2], KeyOfBit key_of_bit) {
    for (;;) {
      put(bits, key_of_bit);
      if (!__any_sync(kAll, (bits[0] | bits[1]) != 0)) return;
      cut();
    }
  }

  // Throws away what is below the limit.
  __device__ void keep() {
    constexpr int kAtOnce = 6;
    static_assert(kEach % kAtOnce == 0);
    unsigned kept = 0;
#pragma unroll 1
    for (unsigned next = 0; next < end_; next += kAtOnce * kStep) {
      Key key[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) key[i] = at(next + i * kStep);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (next + i * kStep >= end_ || key[i] < limit_) continue;
        at(kept) = key[i];
        kept += kStep;
      }
    }
    end_ = kept;
    __syncwarp();
  }

  // As many to each lane, or one less; what is below the limit goes.
  __device__ void spread() {
    Key mine[kEach];
    read(mine);
    write(mine);
  }

  // All of them, once they are side by side.
  __device__ Key* data() const { return keys_ - lane(); }
  __device__ int count() const { return __reduce_add_sync(kAll, own()); }
  // More of them, half of the room at most, behind those that lie side by side.
  __device__ void append(const Key* more, int n) {
    if (count() + n > kRoom) cut();
    const int before = count();
    for (int i = lane(); i < n; i += kWarp) data()[before + i] = more[i];
    __syncwarp();
    set_count(before + n);
  }
  // There are so many side by side, whichever lane put them there.
  __device__ void adopt(int n) { set_count(n); }
  // All of them elsewhere, side by side.
  __device__ void copy(Key* to) const {
    to += sum_until(own()) - own();
#pragma unroll 1
    for (unsigned i = 0; i != end_; i += kStep) *to++ = at(i);
  }
  // Keeps the K largest, or a few more, side by side.
  __device__ void cut() {
    const Kept kept = cut(*this);
    limit_ = kept.limit;
    set_own(kept.own);
  }

  // Of those that lie side by side the largest, in order, at `to`, with room for kOrdered
  // a lane; how many.
  __device__ int order(Key* to) const {
    __syncwarp();
    const int n = count();
    Key mine[2];
    if (n <= 2 * kWarp) {
      sort(mine, 0);
      copy_to(mine, to);
    } else {
      Key largest[kOrdered];
      sort(largest, 0);
#pragma unroll 1
      for (int i = kOrdered; i * kWarp < n; i += 2) {
        sort(mine, i);
        warp_merge_descending(largest, mine);
      }
      copy_to(largest, to);
    }
    __syncwarp();
    return min(n, kOrdered * kWarp);
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  // From a key of the lane to its next, in bytes: an address is then one addition.
  static constexpr unsigned kStep = kWarp * sizeof(Key);
  __device__ Key& at(unsigned bytes) const {
    return *reinterpret_cast<Key*>(reinterpret_cast<std::byte*>(keys_) + bytes);
  }
  // Keys of the lane.
  __device__ int own() const { return static_cast<int>(end_ / kStep); }
  __device__ void set_own(int n) { end_ = static_cast<unsigned>(n) * kStep; }
  // There are so many, side by side.
  __device__ void set_count(int n) { set_own((n - lane() + kWarp - 1) / kWarp); }

  // As long as there is room for two.
  template <class KeyOfBit>
  __device__ void put(unsigned (&bits)[2], KeyOfBit key_of_bit) {
#pragma unroll 1
    while ((bits[0] | bits[1]) != 0 && end_ < (kEach - 1) * kStep) {
      Key key[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        key[i] = key_of_bit(i, __ffs(static_cast<int>(bits[i])) - 1);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (bits[i] != 0) at(end_) = key[i];
        end_ += bits[i] != 0 ? kStep : 0;
        bits[i] &= bits[i] - 1;
      }
    }
    __syncwarp();
  }

  struct Kept {
    Key limit;
    int own;
  };
  // Bisects the keys themselves, in registers. Called, not inlined: it is rare.
  __device__ __noinline__ static Kept cut(WarpKeys of) {
    assume_shared(of.keys_);
    Key mine[kEach];
    of.read(mine);
    Key low = ~Key{0};
    Key high = 0;
#pragma unroll
    for (const Key key : mine) {
      low = min(low, key - 1);  // zeros are no keys
      high = max(high, key);
    }
    low = ~group_fold(~low, LargestKey(), kWarp) + 1;
    high = group_fold(high, LargestKey(), kWarp);
    int n = of.count();
    const bool many = n > of.k_;
    while (n > of.k_ + of.k_ / 8 && low < high) {
      const Key middle = low + (high - low + 1) / 2;
      int counts[2] = {};  // for themselves, so that none waits for another
#pragma unroll
      for (int i = 0; i < kEach; ++i) count_if_larger(counts[i % 2], mine[i], middle - 1);
      const int from = __reduce_add_sync(kAll, counts[0] + counts[1]);
      if (from >= of.k_) {
        low = middle;
        n = from;
      } else {
        high = middle - 1;
      }
    }
    if (many) of.limit_ = max(of.limit_, low);
    of.write(mine);
    return {of.limit_, of.own()};
  }

  // A lane's own, zeros where it has no more.
  __device__ void read(Key (&mine)[kEach]) const {
    const int own = this->own();
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine[i] = i < own ? keys_[kWarp * i] : 0;
    __syncwarp();
  }
  // Those from the limit on, which no zero is, side by side.
  __device__ void write(const Key (&mine)[kEach]) {
    int kept = 0;
#pragma unroll
    for (const Key key : mine) kept += key >= limit_ ? 1 : 0;
    const int until = sum_until(kept);
    Key* to = data() + (until - kept);
#pragma unroll
    for (const Key key : mine) {
      if (key >= limit_) *to++ = key;
    }
    set_count(__shfl_sync(kAll, until, kWarp - 1));
    __syncwarp();
  }

  // N of each lane's, from the first-th on.
  template <int N>
  __device__ void sort(Key (&mine)[N], int first) const {
#pragma unroll
    for (int i = 0; i < N; ++i) mine[i] = first + i < own() ? keys_[kWarp * (first + i)] : 0;
    warp_sort_descending(mine);
  }
  template <int N>
  __device__ static void copy_to(const Key (&mine)[N], Key* to) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[N * lane() + i] = mine[i];
  }

  Key* keys_;         // the lane's
  unsigned end_ = 0;  // a step for each of them
  int k_;
  Key limit_;
};

}  // namespace onepass
