// The threads' lists become one by shuffles: a warp's 32 lists first, then the warps' lists.
#pragma once

#include "merge/warp.cuh"
#include "ops/select/walk/top_list.cuh"

namespace onepass::ops::select {

class WarpMerge {
 public:
  struct Shared {
    Key of_warp[kListWarps + 1][kMostK];  // the last: what was merged before
    Key merged[kMostK];                   // largest first
  };

  // By a whole block, as everything that follows.
  __device__ WarpMerge(Shared& shared, int k) : shared_(shared), k_(k) {
    for (int i = thread(); i < k_; i += kListThreads) shared_.merged[i] = 0;
    __syncthreads();
  }

  // Adds all threads' lists, which are empty afterwards. Returns the limit below which the thread
  // has to look again.
  __device__ Key add(TopList& list) const {
    const Key least = list.least();
    for (int i = thread(); i < k_; i += kListThreads) {
      shared_.of_warp[kListWarps][i] = shared_.merged[i];
    }
    take(
        shared_.of_warp[thread() / kLanes], [&] { return list.largest(); },
        [&] { list.drop_largest(); });
    __syncthreads();
    if (thread() < kLanes) {
      int next = 0;  // of the list that this lane looks after
      const bool has_list = thread() <= kListWarps;
      take(
          shared_.merged,
          [&] { return has_list && next < k_ ? shared_.of_warp[thread()][next] : 0; },
          [&] { ++next; });
    }
    __syncthreads();
    return rest_below(least, shared_.merged[k_ - 1]);
  }

  __device__ const Key* keys() const { return shared_.merged; }

 private:
  static_assert(kListWarps < kLanes, "a lane a list, and one for what was merged before");

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  // K times, by a whole warp: the largest key that a lane shows goes to `to`, and that lane
  // goes on to its next.
  template <class Show, class GoOn>
  __device__ void take(Key* to, Show show, GoOn go_on) const {
#pragma unroll 1
    for (int i = 0; i < k_; ++i) {
      const Key mine = show();
      const Key largest = warp_fold(mine, LargestKey());
      if (mine == largest) go_on();
      if (thread() % kLanes == 0) to[i] = largest;
    }
  }

  Shared& shared_;
  int k_;
};

}  // namespace onepass::ops::select
