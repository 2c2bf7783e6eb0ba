// The largest keys of a thread's slice in its registers, and how to go on where
// sixteen are too few.
//
// A full list forgets the smallest of what it meets. If the least key that it kept is not above
// the K-th largest that is known of the row, nothing that it forgot is among the K largest. If it
// is, the thread looks at its slice again, for the sixteen that come next. After K / 16 rounds
// there can be no more.
#pragma once

#include "ops/select/walk/launch.cuh"

namespace onepass::ops::select {

// Where a thread has looked at nothing yet, and where it need not look again.
inline constexpr Key kAllKeys = ~Key{0};
inline constexpr Key kNoKeys = 0;

class TopList {
 public:
  static constexpr int kKeys = kListKeys;

  __device__ TopList() { clear(); }

  __device__ void offer(Key key) {
    if (key <= least()) return;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const Key smaller = min(key, keys_[i]);
      keys_[i] = max(key, keys_[i]);
      key = smaller;
    }
  }

  // The largest keys of a slice that are below a limit, in place of all that was there.
  template <class T>
  __device__ void gather(const T* x, std::int64_t cols, Key below) {
    clear();
    if (below == kNoKeys) return;
    for_slice(x, cols, [&](float z, unsigned column) {
      const Key key = key_of(z, column);
      if (key < below) offer(key);
    });
  }

  // Largest first; 0 where there is none. `i` must be known to the compiler:
  // registers have no index.
  __device__ Key at(int i) const { return keys_[i]; }
  __device__ Key largest() const { return keys_[0]; }
  __device__ Key least() const { return keys_[kKeys - 1]; }

  __device__ void drop_largest() {
#pragma unroll
    for (int i = 0; i + 1 < kKeys; ++i) keys_[i] = keys_[i + 1];
    keys_[kKeys - 1] = 0;
  }

 private:
  __device__ void clear() {
#pragma unroll
    for (Key& key : keys_) key = 0;
  }

  Key keys_[kKeys];
};

// The limit below which a thread has to look again, `least` being what it kept last and `of_row`
// the K-th largest that is known of the row.
__device__ inline Key rest_below(Key least, Key of_row) { return least > of_row ? least : kNoKeys; }

}  // namespace onepass::ops::select
