// The warps that have a row between them: one, or a few of a block or of a cluster, each with every
// so-many-th stage of it. They read by themselves, and tell each other what they have seen: the
// limit is the row's, not a warp's. Barriers there are at the beginning and at the end.
#pragma once

#include "merge/block.cuh"
#include "merge/cluster.cuh"
#include "merge/warp_rows.cuh"
#include "ops/select/gpu/group_maxima.cuh"
#include "ops/select/gpu/order.cuh"
#include "ops/select/gpu/select.cuh"
#include "ops/select/gpu/stream_plan.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::select {

// When a limit is raised: by all warps, after the first stage and after the last, or by
// one, between them.
struct Times {
  enum When { kFirst, kLast, kBetween };
};

// No other warp to talk to.
class OneWarp : public Times {
 public:
  static constexpr bool kAlone = true;
  static constexpr int kMostThreads = kWarp;
  static constexpr int kBlocksAtOnce = gpu_select::kStreamsAtOnce;

  __device__ OneWarp(std::byte*, int) {}

  __device__ static constexpr int index() { return 0; }
  __device__ static constexpr int count() { return 1; }
  __device__ static constexpr int place() { return 0; }
  __device__ static constexpr int places() { return 1; }
  template <class Maxima>
  __device__ void show(const Maxima&) const {}
  __device__ void meet() const {}
  template <class Keys, class Maxima>
  __device__ void bound(Keys& best, const Maxima& own, When) const {
    best.bound(own);
  }
  __device__ Tally fold(const Tally& mine) const { return warp_fold(mine, MergeTallies()); }
  // Keys that are not below the limit, largest first, where the stages were.
  template <class Keys>
  __device__ void order(Keys& best, float, Key* free, Selected& selected) const {
    static_assert(gpu_select::kMostOneWarpK <= Keys::kOrdered * kWarp);
    best.spread();
    selected.mine = true;
    selected.keys = free;
    selected.count = best.order(free);
  }
};

// All warps of a block, or of the blocks of a cluster, of which the first has the row's
// keys in the end.
class SeveralWarps : public Times {
 public:
  static constexpr bool kAlone = false;
  static constexpr int kGroups = gpu_select::kStreamGroups / 2;  // of a lane, and as many more
  static constexpr int kMostThreads = gpu_select::kStreamsAtOnce * kWarp;
  static constexpr int kBlocksAtOnce = 1;

  // By the whole block.
  __device__ SeveralWarps(std::byte* memory, int k)
      : shared_(*reinterpret_cast<Shared*>(memory)), few_(k <= kGroups / 2 * kWarp) {
    for (int i = thread(); i < 2 * kGroups * kWarp; i += threads()) {
      shared_.shown[i] = nothing_shown();
    }
    if (thread() < 2) shared_.range[thread()] = {0xFFFFFFFFU, 0};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cluster::size() > 1) {
      if (thread() == 0) {
        expect_bytes(others().heard, (cluster::size() - 1) * shown_words() * 4);
        expect_senders(others().gathered, cluster::size() - 1);
      }
      cluster::say_begun();
    }
#endif
    __syncthreads();
  }

  // A warp of its block, and of the row.
  __device__ static int index() { return thread() / kWarp; }
  __device__ static int count() { return threads() / kWarp; }
  __device__ static int place() { return cluster::rank() * count() + index(); }
  __device__ static int places() { return cluster::size() * count(); }

  // What a lane's groups have shown to its warp, in half as many; where these are few for a K,
  // every other warp has others.
  template <class Maxima>
  __device__ void show(const Maxima& own) const {
    static_assert(Maxima::kGroups == 2 * kGroups);
    const auto half = own.halved();
    unsigned* to = &shared_.shown[(few_ ? 0 : index() % 2) * kGroups * kWarp + lane()];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) atomicMax(to + g * kWarp, half[g]);
  }
  __device__ void meet() const { __syncthreads(); }

  // By what they have shown to all warps: by all at once where each thread has one of those words,
  // and barriers count.
  template <class Keys, class Maxima>
  __device__ void bound(Keys& best, const Maxima&, When when) const {
    if (when == kBetween || shown_words() > threads()) return best.bound(shown());
    const unsigned word = thread() < shown_words() ? shared_.shown[thread()] : nothing_shown();
    const bool has = word != nothing_shown();
    const unsigned low = __reduce_min_sync(kAll, has ? word : 0xFFFFFFFFU);
    const unsigned high = __reduce_max_sync(kAll, word);
    Range& range = shared_.range[when];
    if (lane() == 0) {
      atomicMin(&range.low, low);
      atomicMax(&range.high, high);
    }
    const int n = __syncthreads_count(has);
    Bound bound{.low = range.low, .high = range.high, .n = n};
    bound.raise(best.k(), [&](unsigned least) { return __syncthreads_count(word >= least); });
    best.take(bound);
  }

  __device__ Tally fold(const Tally& mine) const { return Fold(shared_.tallies).once(mine); }

  // What other blocks of the cluster have shown. All of this one have, and no warp reads its stages
  // any more: the others may send to where they were.
  __device__ void hear() const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const int other_blocks = cluster::size() - 1;
    if (other_blocks == 0) return;
    cluster::wait_for_others();
    const int rank = cluster::rank();
    for (int i = thread(); i < shown_words(); i += threads()) {
      for (int other = 0; other <= other_blocks; ++other) {
        if (other == rank) continue;
        const int from = rank < other ? rank : rank - 1;  // among the others of that one
        send(shared_.shown[i], &heard()[from * shown_words() + i], others().heard, other);
      }
    }
    wait_for_bytes(others().heard);
    for (int i = thread(); i < shown_words(); i += threads()) {
      for (int from = 0; from < other_blocks; ++from) {
        shared_.shown[i] = max(shared_.shown[i], heard()[from * shown_words() + i]);
      }
    }
    __syncthreads();
#endif
  }

  // The keys of all warps, which meet in the first one's room; `free` is where their stages were.
  // `step` is that of the words.
  template <class Keys>
  __device__ void order(Keys& best, float step, Key* free, Selected& selected) const {
    static_assert(kRankedKeys <= Keys::kRoom);
    static_assert(gpu_select::kMostStreamK / 8 * 9 <= Keys::kRoom / 2);  // what a cut leaves
    static_assert(sizeof(BinnedKeys) <= 2 * gpu_select::kStreamStagesBytes);
    const bool alone = cluster::size() == 1;
    Key* const all = best.data() - index() * Keys::kRoom;
    int count = gather(best, all, alone ? kRankedKeys : Keys::kRoom / 2);
    selected.mine = cluster::rank() == 0;
    if (!alone) count = meet_blocks(best, all, free + kRankedKeys, count, selected);
    if (!selected.mine) return;
    selected.keys = count <= kCountedKeys
                        ? order_by_counts(all, free, count)
                        : order_by_bins(all, count, step, *reinterpret_cast<BinnedKeys*>(free));
    selected.count = count;
  }

 private:
  // The keys of the block's warps side by side, if they are so many at most; else their
  // largest. How many.
  template <class Keys>
  __device__ int gather(Keys& best, Key* all, int most) const {
    best.keep();
    if (best.count() > Keys::kRoom / 2) best.cut();
    if (index() == 0) best.spread();  // to make room
    const int own = best.count();
    if (lane() == 0) shared_.counts[index()] = own;
    __syncthreads();
    const int of_warp = lane() < count() ? shared_.counts[lane()] : 0;
    const int until = sum_until(of_warp);
    const int together = __shfl_sync(kAll, until, kWarp - 1);
    if (together <= most) {
      const int before = __shfl_sync(kAll, until - of_warp, index());
      if (index() == 0) {
        best.adopt(together);
      } else {
        best.copy(all + before);
      }
      return together;
    }
    best.spread();
    __syncthreads();
    return cut_all(best, [&](auto take) {
      for (int w = 1; w < count(); ++w) take(all + w * Keys::kRoom, shared_.counts[w]);
    });
  }

  // All blocks' keys in the first one; `free` is there for the others', half a room for each.
  template <class Keys>
  __device__ int meet_blocks(Keys& best, Key* all, Key* free, int count, Selected& selected) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kRoom = Keys::kRoom / 2;
    const int other_blocks = cluster::size() - 1;
    __syncthreads();
    if (!selected.mine) {
      const int from = cluster::rank() - 1;
      if (thread() == 0) {
        announce_bytes(others().gathered, static_cast<int>(sizeof(Tally) + count * sizeof(Key)), 0);
        Tally tally = selected.total;
        tally.count = count;
        send(tally, &others().tallies[from], others().gathered, 0);
      }
      for (int i = thread(); i < count; i += threads()) {
        send(all[i], free + from * kRoom + i, others().gathered, 0);
      }
      return count;
    }
    wait_for_bytes(others().gathered);
    int together = count;
    for (int from = 0; from < other_blocks; ++from) {
      selected.total = MergeTallies()(selected.total, others().tallies[from]);
      together += others().tallies[from].count;
    }
    if (together > kRankedKeys) {
      return cut_all(best, [&](auto take) {
        for (int from = 0; from < other_blocks; ++from) {
          take(free + from * kRoom, others().tallies[from].count);
        }
      });
    }
    for (int from = 0; from < other_blocks; ++from) {
      const int more = others().tallies[from].count;
      for (int i = thread(); i < more; i += threads()) all[count + i] = free[from * kRoom + i];
      count += more;
    }
#endif
    return count;
  }

  __device__ OrderedMaxima<2 * kGroups> shown() const {
    OrderedMaxima<2 * kGroups> all;
#pragma unroll
    for (int g = 0; g < 2 * kGroups; ++g) all[g] = shared_.shown[g * kWarp + lane()];
    return all;
  }

  // Many are alike: the first warp takes others' keys one list after the other. each(take) calls
  // take(keys, n) with those.
  template <class Keys, class Each>
  __device__ int cut_all(Keys& best, Each each) const {
    if (index() == 0) {
      each([&](const Key* keys, int n) { best.append(keys, n); });
      best.cut();
      const int left = best.count();
      if (lane() == 0) shared_.left = left;
    }
    __syncthreads();
    return shared_.left;
  }

  static constexpr unsigned kAll = 0xFFFFFFFFU;
  using Fold = BlockFold<MergeTallies, gpu_select::kStreamsAtOnce>;

  struct Range {
    unsigned low, high;
  };
  struct Shared {
    Fold::Scratch tallies;
    unsigned shown[2 * kGroups * kWarp];
    int counts[gpu_select::kStreamsAtOnce];  // of keys
    Range range[2];
    int left;
  };
  static_assert(sizeof(Shared) == gpu_select::kStreamMeetingBytes);
  // Behind it, for the other blocks of a cluster.
  struct ForOthers {
    Mbarrier heard, gathered;
    Tally tallies[gpu_select::kMostStreamCluster - 1];  // in the first block
  };
  static_assert(sizeof(ForOthers) == gpu_select::kStreamOthersBytes);

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static int lane() { return thread() % kWarp; }
  __device__ int shown_words() const { return (few_ ? 1 : 2) * kGroups * kWarp; }
  __device__ ForOthers& others() const { return *reinterpret_cast<ForOthers*>(&shared_ + 1); }
  __device__ unsigned* heard() const {  // what each of them has shown
    return reinterpret_cast<unsigned*>(&others() + 1);
  }

  Shared& shared_;
  bool few_;
};

}  // namespace onepass::ops::select
