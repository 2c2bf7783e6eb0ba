// The K largest of a row in a block's shared memory.
//
// An element is offered where its key is above the limit: at least K keys that are not below it are
// known to be there. Two things raise the limit. Of the largest element that each thread has seen,
// the K-th is such a bound: a bisection with barriers that count. And where the keys have no room
// left, all but the K largest go.
#pragma once

#include "core/cuda/shared.cuh"
#include "merge/block.cuh"
#include "ops/select/gpu/order.cuh"
#include "ops/select/gpu/plan.hpp"

namespace onepass {

// A shared list that many append to. From the first that finds no room on none does, and the list
// ends where he would have begun.
class Appended {
 public:
  // By one thread, with a barrier before anybody appends.
  __device__ void reset(int count) {
    offered_ = count;
    end_ = 0x7FFFFFFF;
  }

  // The place of `count` more; −1 where there is no room.
  __device__ int take(int count, int room) {
    const int at = atomicAdd(&offered_, count);
    if (at + count <= room) return at;
    atomicMin(&end_, at);
    return -1;
  }

  __device__ int count() const { return min(offered_, end_); }

 private:
  int offered_;  // with those that found no room
  int end_;      // where the first of these would have been
};

class BestKeys {
 public:
  static constexpr int kEach = gpu_select::kKeysEach;  // keys a thread looks after

  struct Shared {
    Appended offered;
    int taken;    // and of them selected
    int sums[3];  // of a count over the block: this one, the next, the one before
    unsigned low[32], high[32];
    BlockFold<LargestKey>::Scratch keys;
  };

  // By a whole block, as everything that follows, with memory for room() keys twice: what is
  // offered, and, once all has been, what is to be ordered. A barrier must come before
  // anything is offered.
  __device__ BestKeys(Shared& shared, Key* keys, Key* list, int k)
      : shared_(shared), keys_(keys), list_(list), k_(k), limit_(lowest_limit()) {
    set_count(shared_, 0);
  }

  __device__ static int room() { return kEach * threads(); }
  __device__ int k() const { return k_; }
  __device__ int count() const { return shared_.offered.count(); }
  __device__ const Key* keys() const { return keys_; }
  __device__ Key* list() const { return list_; }
  __device__ Key limit() const { return limit_; }
  __device__ void raise(Key limit) { limit_ = limit > limit_ ? limit : limit_; }

  // For a function that got this as an argument.
  __device__ void assume_shared() const {
    onepass::assume_shared(&shared_);
    onepass::assume_shared(keys_);
    onepass::assume_shared(list_);
  }

  // Not many more than K: there is no need to look for a better limit.
  __device__ bool few(int count) const { return count <= k_ + k_ / 4 + 32; }

  // Raises the limit by the K-th largest of what the threads bring, or by a little less.
  __device__ void bound(float largest) { raise(bound_of(shared_, k_, largest)); }

  // False where there is no room.
  __device__ bool offer(Key key) {
    const int at = shared_.offered.take(1, room());
    if (at >= 0) keys_[at] = key;
    return at >= 0;
  }

  // Throws away all but the K largest, or a few more: at most `most`, which is not less than K.
  __device__ void cut(int most) { raise(limit_of_cut(shared_, keys_, k_, most)); }

  // The keys that are not below the limit, at most `most` of them, which is not less
  // than K; how many.
  __device__ int select(Key* to, int most) {
    if (thread() == 0) shared_.taken = 0;
    __syncthreads();
    if (count() > most && count_from(limit_) > most) cut(most);
    const int n = count();
#pragma unroll 1
    for (int i = thread(); i < n; i += threads()) {
      const Key key = keys_[i];
      if (key >= limit_) to[atomicAdd(&shared_.taken, 1)] = key;
    }
    __syncthreads();
    return shared_.taken;
  }

  // From now on nothing has been offered.
  __device__ void restart() {
    set_count(shared_, 0);
    __syncthreads();
  }

  // What other parts selected is offered, too: segment r, at from + r · apart, has a key that
  // counts and then so many keys. A warp a segment, while all of them have room. No warp may have
  // been turned away since the last cut.
  __device__ void absorb(const Key* from, int parts, int apart) {
    int total = count() + parts * apart;
    if (total > room()) total = count() + sum_of_counts(from, parts, apart);
    __syncthreads();  // all threads know how many there were
    if (total <= room()) {
#pragma unroll 1
      for (int r = thread() / 32; r < parts; r += threads() / 32) {
        const auto more = static_cast<int>(from[r * apart]);
        int at = 0;
        if (lane() == 0) at = shared_.offered.take(more, room());
        at = __shfl_sync(kAll, at, 0);
#pragma unroll 1
        for (int i = lane(); i < more; i += 32) keys_[at + i] = from[r * apart + 1 + i];
      }
    } else {
#pragma unroll 1
      for (int r = 0; r < parts; ++r) {
        const auto more = static_cast<int>(from[r * apart]);
        if (count() + more > room()) cut(k_);
        const int n = count();
        __syncthreads();
#pragma unroll 1
        for (int i = thread(); i < more; i += threads()) keys_[n + i] = from[r * apart + 1 + i];
        set_count(shared_, n + more);
        __syncthreads();
      }
    }
    __syncthreads();
    if (few(count())) return;
    Key largest = 0;
#pragma unroll 1
    for (int i = thread(); i < count(); i += threads()) largest = max(largest, keys_[i]);
    bound(largest == 0 ? minus_infinity<float>() : value_of(largest));
  }

  // What was offered and is not below the limit, in order; where that is, and how many.
  __device__ Key* order(int& count) {
    const bool all = few(this->count());
    count = all ? this->count() : select(list_, room());
    return order_keys(all ? keys_ : list_, all ? list_ : keys_, count);
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  // By all, with a barrier before anybody counts on it.
  __device__ static void set_count(Shared& shared, int count) {
    if (thread() == 0) shared.offered.reset(count);
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static int lane() { return thread() % 32; }

  // A bisection that ends when not many more than K of the threads' values are left.
  __device__ static Key bound_of(Shared& shared, int k, float largest) {
    const unsigned none = ordered(minus_infinity<float>());
    const unsigned word = ordered(largest);
    const unsigned low_of_warp = __reduce_min_sync(kAll, word == none ? kAll : word);
    const unsigned high_of_warp = __reduce_max_sync(kAll, word);
    if (lane() == 0) {
      shared.low[thread() / 32] = low_of_warp;
      shared.high[thread() / 32] = high_of_warp;
    }
    int n = __syncthreads_count(word != none);
    const bool has = lane() < threads() / 32;
    unsigned low = __reduce_min_sync(kAll, has ? shared.low[lane()] : kAll);
    unsigned high = __reduce_max_sync(kAll, has ? shared.high[lane()] : 0U);
    if (k == 1) low = high;
    while (n > k + k / 8 + 4 && low < high) {
      const unsigned middle = low + (high - low + 1) / 2;
      const int above = __syncthreads_count(word >= middle);
      if (above >= k) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
    __syncthreads();  // the slots are free again
    return n < k ? 0 : just_below(low);
  }

  // Bisects the keys themselves. Called, not inlined: what is rare should not take the
  // loop's registers.
  __device__ __noinline__ static Key limit_of_cut(Shared& shared, Key* keys, int k, int most) {
    onepass::assume_shared(&shared);
    onepass::assume_shared(keys);
    __syncthreads();
    int n = shared.offered.count();
    if (n <= most) {
      __syncthreads();
      set_count(shared, n);
      __syncthreads();
      return 0;
    }
    Key mine[kEach];
    Key largest = 0;
    Key smallest = ~Key{0};
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = thread() + j * threads();
      mine[j] = i < n ? keys[i] : 0;
      largest = max(largest, mine[j]);
      if (i < n) smallest = min(smallest, mine[j]);
    }
    const BlockFold<LargestKey> block(shared.keys);
    Key high = block.all(largest);
    Key low = ~block.all(~smallest);
    if (thread() < 3) shared.sums[thread()] = 0;
    __syncthreads();
    for (int turn = 0; n > most && low < high; ++turn) {
      const Key middle = low + (high - low + 1) / 2;
      int above = 0;
#pragma unroll
      for (int j = 0; j < kEach; ++j) above += mine[j] >= middle ? 1 : 0;
      above = __reduce_add_sync(kAll, above);
      if (lane() == 0) atomicAdd(&shared.sums[turn % 3], above);
      __syncthreads();
      above = shared.sums[turn % 3];
      if (thread() == 0)
        shared.sums[(turn + 2) % 3] = 0;  // the turn before's: no thread reads it now
      if (above >= k) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
    set_count(shared, 0);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (mine[j] >= low) keys[shared.offered.take(1, room())] = mine[j];
    }
    __syncthreads();
    return low;
  }

  __device__ int count_from(Key limit) {
    int mine = 0;
#pragma unroll 1
    for (int i = thread(); i < count(); i += threads()) {
      mine += keys_[i] >= limit ? 1 : 0;
    }
    if (thread() == 0) shared_.sums[0] = 0;
    __syncthreads();
    mine = __reduce_add_sync(kAll, mine);
    if (lane() == 0) atomicAdd(&shared_.sums[0], mine);
    __syncthreads();
    return shared_.sums[0];
  }

  __device__ static int sum_of_counts(const Key* from, int parts, int apart) {
    int total = 0;
#pragma unroll 1
    for (int r = lane(); r < parts; r += 32) total += static_cast<int>(from[r * apart]);
    return __reduce_add_sync(kAll, total);
  }

  Shared& shared_;
  Key* keys_;
  Key* list_;
  int k_;
  Key limit_;
};

}  // namespace onepass
