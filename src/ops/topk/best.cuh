// The K largest of a row in a block's shared memory.
//
// An element is offered where its key is above the limit: at least K keys that are not below it are known to
// be there. Two things raise the limit. Of the largest element that each thread has seen, the K-th is such a
// bound, and it costs a few of the block's counting barriers. Where the keys have no room left, all but the K
// largest go.
#pragma once

#include "dispatch/gpu_choose.hpp"
#include "merge/block.cuh"
#include "merge/sort.cuh"
#include "ops/topk/key.cuh"

namespace onepass {

class BestKeys {
 public:
  static constexpr int kEach = gpu_choose::kKeysEach;  // keys a thread looks after
  static constexpr int kRanked = 512;                  // so few are ordered by counting

  struct Shared {
    int count;     // keys that were offered
    int taken;     // and of them selected
    int sums[3];   // of a count over the block: this one, the next, the one before
    unsigned low[32], high[32];
    BlockFold<LargestKey>::Scratch keys;
  };

  // By a whole block, as everything that follows. There are kEach keys a thread at `keys`, and as many at
  // `list`.
  __device__ BestKeys(Shared& shared, Key* memory, int k)
      : shared_(shared), keys_(memory), list_(memory + room()), k_(k), limit_(lowest_limit()) {
    if (thread() == 0) shared_.count = 0;
    __syncthreads();
  }

  __device__ static int room() { return kEach * threads(); }
  __device__ int k() const { return k_; }
  __device__ int count() const { return shared_.count; }
  __device__ Key limit() const { return limit_; }
  __device__ void raise(Key limit) { limit_ = limit > limit_ ? limit : limit_; }

  // Raises the limit by the K-th largest of what the threads bring, or by a little less.
  __device__ void bound(float largest) { raise(bound_of(shared_, k_, largest)); }

  // A thread's place for `count` keys; null where there is no room.
  __device__ Key* place_if_room(int count) {
    const int at = atomicAdd(&shared_.count, count);
    if (at + count <= room()) return keys_ + at;
    atomicSub(&shared_.count, count);
    return nullptr;
  }

  // Throws away all but the K largest, or a few more: at most `most`, which is not less than K.
  __device__ void cut(int most) { raise(limit_of_cut(shared_, keys_, k_, most)); }

  // The keys above the limit, at most `most` of them, which is not less than K, to any memory; how many.
  __device__ int select(Key* to, int most) {
    if (thread() == 0) shared_.taken = 0;
    __syncthreads();
    int n = min(shared_.count, room());
    if (n > most) {
      int above = 0;
      for (int i = thread(); i < n; i += threads()) above += keys_[i] >= limit_ ? 1 : 0;
      if (lane_sum_of_block(above) > most) cut(most);
      n = shared_.count;
    }
    for (int i = thread(); i < n; i += threads()) {
      const Key key = keys_[i];
      if (key >= limit_) to[atomicAdd(&shared_.taken, 1)] = key;
    }
    __syncthreads();
    return shared_.taken;
  }

  // What other blocks selected, `counts[r]` keys at from + r · apart, is now what was offered.
  __device__ void absorb(const Key* from, const int* counts, int parts, int apart) {
    __syncthreads();
    int n = 0;
    for (int r = 0; r < parts; ++r) {
      const int more = counts[r];
      if (n + more > room()) {
        if (thread() == 0) shared_.count = n;
        cut(k_);
        n = shared_.count;
      }
      for (int i = thread(); i < more; i += threads()) keys_[n + i] = from[r * apart + i];
      n += more;
    }
    __syncthreads();
    if (thread() == 0) shared_.count = n;
    __syncthreads();
    bound_by_keys();
  }

  // Raises the limit by what was offered.
  __device__ void bound_by_keys() {
    if (count() <= k_ + k_ / 4 + 32) return;
    Key largest = 0;
    for (int i = thread(); i < count(); i += threads()) largest = max(largest, keys_[i]);
    bound(largest == 0 ? minus_infinity<float>() : value_of(largest));
  }

  // The selected keys where they can be ordered.
  __device__ Key* list() const { return list_; }

  // Orders `n` keys of the list, largest first: by counting how many are larger, or where they are many by a
  // network. Where they are then.
  __device__ Key* order(int n) {
    __syncthreads();
    if (n > kRanked) {
      int size = 2;
      while (size < n) size *= 2;
      for (int i = n + thread(); i < size; i += threads()) list_[i] = 0;
      sort_descending(list_, size);
      return list_;
    }
    int each = 1;  // threads that count for a key
    while (each < 32 && 2 * each * n <= threads()) each *= 2;
    for (int first = 0; first < n; first += threads() / each) {
      const int i = first + thread() / each;
      const Key key = i < n ? list_[i] : 0;
      int larger = 0;
      for (int j = thread() % each; j < n; j += each) larger += list_[j] > key ? 1 : 0;
      for (int apart = each / 2; apart > 0; apart /= 2) {
        larger += __shfl_xor_sync(kAll, larger, apart);
      }
      if (i < n && thread() % each == 0) keys_[larger] = key;
    }
    __syncthreads();
    return keys_;
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static int lane() { return thread() % 32; }

  // A bisection that ends when not many more than K of the threads' values are left.
  __device__ static Key bound_of(Shared& shared, int k, float largest) {
    const unsigned none = ordered(minus_infinity<float>());
    const unsigned word = ordered(largest);
    const unsigned low_of_warp = __reduce_min_sync(kAll, word == none ? 0xFFFFFFFFU : word);
    const unsigned high_of_warp = __reduce_max_sync(kAll, word);
    if (lane() == 0) {
      shared.low[thread() / 32] = low_of_warp;
      shared.high[thread() / 32] = high_of_warp;
    }
    int n = __syncthreads_count(word != none);
    const bool has = lane() < threads() / 32;
    unsigned low = __reduce_min_sync(kAll, has ? shared.low[lane()] : 0xFFFFFFFFU);
    unsigned high = __reduce_max_sync(kAll, has ? shared.high[lane()] : 0U);
    if (n < k) return 0;
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
    return just_below(low);
  }

  // Bisects the keys themselves. Called, not inlined: what is rare should not take the loop's registers.
  __device__ __noinline__ static Key limit_of_cut(Shared& shared, Key* keys, int k, int most) {
    __syncthreads();
    int n = min(shared.count, room());
    if (n <= most) return 0;
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
      if (thread() == 0) shared.sums[(turn + 2) % 3] = 0;  // of the turn before: nobody reads it now
      if (above >= k) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
    if (thread() == 0) shared.count = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (mine[j] >= low) keys[atomicAdd(&shared.count, 1)] = mine[j];
    }
    __syncthreads();
    return low;
  }

  __device__ int lane_sum_of_block(int mine) {
    if (thread() == 0) shared_.sums[0] = 0;
    __syncthreads();
    mine = __reduce_add_sync(kAll, mine);
    if (lane() == 0) atomicAdd(&shared_.sums[0], mine);
    __syncthreads();
    const int sum = shared_.sums[0];
    __syncthreads();
    return sum;
  }

  Shared& shared_;
  Key* keys_;
  Key* list_;
  int k_;
  Key limit_;
};

}  // namespace onepass
