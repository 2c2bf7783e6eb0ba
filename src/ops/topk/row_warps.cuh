// The warps that have a row between them: one, or a few, each with every so-many-th stage of it. They read by themselves, and
// tell each other what they have seen: the limit is the row's, not a warp's. Barriers there are at the beginning and at the end.
#pragma once

#include "merge/block.cuh"
#include "ops/topk/choose.cuh"
#include "ops/topk/order.cuh"

namespace onepass::ops::topk {

// Nobody to talk to.
class OneWarp {
 public:
  static constexpr bool kAlone = true;
  static constexpr int kMostThreads = kWarp;
  static constexpr int kBlocksAtOnce = gpu_choose::kStreamsAtOnce;

  __device__ explicit OneWarp(std::byte*) {}

  __device__ static constexpr int index() { return 0; }
  __device__ static constexpr int count() { return 1; }
  template <int G>
  __device__ void show(const unsigned (&)[G]) const {}
  template <int G>
  __device__ void meet(const unsigned (&)[G]) const {}
  template <int G>
  __device__ void share(unsigned (&)[G]) const {}
  __device__ Tally fold(const Tally& mine) const { return warp_fold(mine, MergeTallies()); }
  // Keys that are not below the limit, largest first, in one of the two places or the other; which, and how many.
  template <class Keys>
  __device__ Key* order(Keys& best, Key* free, int& count) const {
    best.settle();
    best.order(free);
    count = best.count();
    return free;
  }
};

// All warps of a block.
class SeveralWarps {
 public:
  static constexpr bool kAlone = false;
  static constexpr int kMostThreads = gpu_choose::kStreamsAtOnce * kWarp;
  static constexpr int kBlocksAtOnce = 1;

  // By the whole block.
  __device__ explicit SeveralWarps(std::byte* memory)
      : shared_(*reinterpret_cast<Shared*>(memory)) {
    for (unsigned i = threadIdx.x; i < kGroups * kWarp; i += blockDim.x) shared_.shown[i] = 0;
    __syncthreads();
  }

  __device__ static int index() { return static_cast<int>(threadIdx.x / kWarp); }
  __device__ static int count() { return static_cast<int>(blockDim.x / kWarp); }

  // Words of a lane's groups: the largest elements that a warp has met there.
  template <int G>
  __device__ void show(const unsigned (&word)[G]) const {
    static_assert(G == kGroups);
#pragma unroll
    for (int g = 0; g < G; ++g) atomicMax(&shared_.shown[g * kWarp + lane()], word[g]);
  }

  // When all have.
  template <int G>
  __device__ void meet(const unsigned (&word)[G]) const {
    show(word);
    __syncthreads();
  }

  // And they become what all warps have met in groups of that number.
  template <int G>
  __device__ void share(unsigned (&word)[G]) const {
    static_assert(G == kGroups);
#pragma unroll
    for (int g = 0; g < G; ++g) {
      word[g] = max(word[g], atomicMax(&shared_.shown[g * kWarp + lane()], word[g]));
    }
  }

  __device__ Tally fold(const Tally& mine) const { return Fold(shared_.tallies).all(mine); }

  // The keys of all warps, which meet in the first one's room. Nobody may be reading `free` any more.
  template <class Keys>
  __device__ Key* order(Keys& best, Key* free, int& count) const {
    static_assert(kRankedKeys <= Keys::kRoom);
    static_assert(gpu_choose::kMostStreamK / 4 * 5 <= Keys::kRoom / 2);  // what a cut leaves
    best.settle();
    if (best.count() > Keys::kRoom / 2) best.cut();
    const int own = best.count();
    if (lane() == 0) shared_.counts[index()] = own;
    __syncthreads();
    const int of_warp = lane() < this->count() ? shared_.counts[lane()] : 0;
    const int until = sum_until(of_warp);
    Key* const all = best.data() - index() * Keys::kRoom;
    count = __shfl_sync(kAll, until, kWarp - 1);
    if (count <= kRankedKeys) {
      Key* const to = all + __shfl_sync(kAll, until - of_warp, index());
      if (index() > 0) best.copy(to);
    } else {
      count = cut_all(best, all);
    }
    return order_keys(all, free, count);
  }

 private:
  // Many are alike: the first warp takes the others' one after the other.
  template <class Keys>
  __device__ int cut_all(Keys& best, const Key* all) const {
    if (index() == 0) {
      for (int w = 1; w < count(); ++w) best.append(all + w * Keys::kRoom, shared_.counts[w]);
      best.cut();
      const int left = best.count();
      if (lane() == 0) shared_.left = left;
    }
    __syncthreads();
    return shared_.left;
  }

  static constexpr unsigned kAll = 0xFFFFFFFFU;
  static constexpr int kGroups = gpu_choose::kStreamGroups;
  using Fold = BlockFold<MergeTallies, gpu_choose::kStreamsAtOnce>;

  struct Shared {
    Fold::Scratch tallies;
    unsigned shown[kGroups * kWarp];
    int counts[gpu_choose::kStreamsAtOnce];  // of keys
    int left;
  };
  static_assert(sizeof(Shared) <= gpu_choose::kStreamMeetingBytes);

  __device__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }

  Shared& shared_;
};

}  // namespace onepass::ops::topk
