// The K largest of a row by a cluster that guesses how many of them each block has.
//
// A block has its part in registers, and sends the largest of it, more than its share of the K, to
// the first block: no block waits to hear a limit. The first puts what it got in order and sees
// whether that was enough. It was, unless the last key that a block sent is above the K-th: then
// that block may have more, and all select again, with a limit.
//
// All of it is one short step after the other, and a step takes as long as its instructions stand
// in a row: sizes are known to the compiler, and words are compared where keys need not be.
#pragma once

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/launch.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::select {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Of blocks that send Share keys each.
template <class Row, int Share>
class Guess {
 public:
  static constexpr int kThreads = gpu_select::kGuessThreads;
  static constexpr int kKeys = gpu_select::kGuessKeys;  // that are sent
  static constexpr int kSize = kKeys / Share;           // of the cluster
  static constexpr int kWarps = kThreads / kWarp;
  static_assert(kThreads == kKeys, "a thread has a key");

  struct Limit {
    unsigned limit, top;
  };

  struct alignas(16) Shared {
    Key found[kKeys];             // of a block, from its limit on; zeros behind them
    Key runs[kKeys];              // in the first block: what each of them sent, largest first
    Key left[kKeys];              // of 16 runs, those that may be among the K; zeros behind them
    Key ordered[kKeys];           // and these, or all of four runs, in order
    unsigned largest[2 * Share];  // words of groups of a block's threads
    Limit limits[kWarps];         // that warps have found
    float d[kWarps];
    unsigned before[kWarps];
    Tally tallies[kSize];
    Tally total;
    Mbarrier gathered, told;
    int enough;  // which the first block tells the others
    int found_count, left_count;
  };
  using Tile = typename Row::Held[Row::kPacks];

  // `memory`: for a tile of each thread.
  __device__ Guess(Shared& shared, std::byte* memory, const Row& row)
      : shared_(shared),
        own_(reinterpret_cast<Held*>(memory) + thread()),
        row_(row),
        rank_(cluster::rank()) {}

  // Asks for the block's part. Warps take turns over the blocks, so that neighbours, likely tokens
  // among them, are not all of one block.
  __device__ void ask() const {
#pragma unroll
    for (int p = 0; p < Row::kPacks; ++p) {
      if (has(p)) copy_async(row_.address(pack(p)), own_ + p * kThreads);
    }
  }

  // Before the block says that it has begun.
  __device__ void begin() const {
    if (thread() == kWarp) {
      expect_bytes(shared_.gathered,
                   kSize * (Share * gpu_select::kKeyBytes + gpu_select::kTallyBytes));
      expect_bytes(shared_.told, sizeof(int));
      shared_.found_count = 0;
      shared_.left_count = 0;
    }
    shared_.found[thread()] = 0;
    shared_.left[thread()] = 0;
  }

  // Before the copy engine writes where the tiles were, which no thread has read since the barrier
  // after the selection.
  __device__ static void yield_memory() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }

  // False where the guess was wrong.
  __device__ bool select(int k, const Target& target, bool ranks, Selected& selected) const {
    send_share(target, ranks);
    selected.mine = rank_ == 0;
    if (!selected.mine) {
      wait_for_bytes(shared_.told);
      return shared_.enough != 0;
    }
    wait_for_bytes(shared_.gathered);
    int n = 0;
    if constexpr (kSize == 4) {
      selected.total = total_of_four();
      n = order_all();
    } else {
      if (warp() == kWarps - 1) fold_tallies();
      n = order_best(k);
      selected.total = shared_.total;
    }
    const Key kth = n >= k ? shared_.ordered[k - 1] : 0;
    const Key last = shared_.runs[lane() % kSize * Share + Share - 1];
    const bool enough = !__any_sync(kAll, last > kth || last == kTooMany);
    if (thread() > 0 && thread() < kSize) {
      send(static_cast<int>(enough), &shared_.enough, shared_.told, thread());
    }
    selected.keys = shared_.ordered;
    selected.count = min(n, k);
    return enough;
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;
  static constexpr Key kTooMany = ~Key{0};        // no element's
  static constexpr int kStep = kSize * kThreads;  // between a thread's packs
  using Element = typename Row::Element;
  using Held = typename Row::Held;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() % kWarp; }
  __device__ static int warp() { return thread() / kWarp; }
  __device__ int pack(int p) const { return (warp() * kSize + rank_) * kWarp + lane() + p * kStep; }
  __device__ bool has(int p) const { return pack(p) < row_.packs(); }

  __device__ void send_share(const Target& target, bool ranks) const {
    const bool own = rank_ == 0 && thread() < row_.edges();
    const float edge = own ? row_.edge(thread()) : minus_infinity<float>();
    const auto edge_column = static_cast<int>(row_.edge_column(thread()));
    wait_for_copies();
    Tile tile;
#pragma unroll
    for (int p = 0; p < Row::kPacks; ++p) tile[p] = has(p) ? own_[p * kThreads] : Row::nothing();
    unsigned top = 0;
    const float m = larger_or_nan(Row::largest(tile), edge);
    const unsigned limit = block_limit(m, top);
    const float v = value_of(max(just_below(limit), lowest_limit()));
    const float s = value_of_word(top);

    find(tile, v);
    if (own && edge > v) put(key_of(edge, static_cast<unsigned>(edge_column)));
    __syncwarp();  // who found something would do all that follows after the others
    float d = row_.sum(tile, shift(s));
    if (own) d += exponential((edge - shift(s)) * row_.factor());  // z may be −inf where x is not
    d = warp_fold(d, Add<float>());
    if (lane() == 0) shared_.d[warp()] = d;
    if (ranks) {
      unsigned before = own && target.follows(edge, edge_column) ? 1 : 0;
      before = warp_fold(before + before_target(tile, target), Add<unsigned>());
      if (lane() == 0) shared_.before[warp()] = before;
    }
    cluster::wait_for_others();
    const bool broken = __syncthreads_or(m != m) != 0;

    if (warp() == kWarps - 1) send_tally(broken ? broken_state().m : row_.z(s), ranks);
    // More than there is room for are as many as no guess allows.
    const bool many = shared_.found_count > kKeys;
    const int n = many ? 0 : shared_.found_count;
    const auto send_key = [this](int place, Key key) {
      if (place < Share) {
        send(key, &shared_.runs[rank_ * Share + place], shared_.gathered, 0);
      }
    };
    constexpr int kUsual = Share == 16 ? 64 : 128;  // that a block finds, or fewer
    if (n <= kUsual) {
      place_keys<kKeys / kUsual, kUsual / 8>(shared_.found, n, send_key);
    } else {
      place_keys<1>(shared_.found, n, send_key);
    }
    if (thread() >= n) send_key(thread(), many ? kTooMany : Key{0});
  }

  // The word from which on there are Share elements or more, if there are so many: of the largest
  // of groups of threads, the one that has this place. `top`: of all.
  __device__ unsigned block_limit(float m, unsigned& top) const {
    constexpr int kGroups = 2 * Share;
    constexpr int kLanes = kThreads / kGroups;  // of a group
    const float largest =
        onepass::group_fold(m == m ? m : minus_infinity<float>(), Largest<float>(), kLanes);
    if (thread() % kLanes == 0) shared_.largest[thread() / kLanes] = ordered(largest);
    __syncthreads();
    if constexpr (kGroups == kWarp) {  // every warp for itself
      const unsigned word = shared_.largest[lane()];
      top = __reduce_max_sync(kAll, word);
      return __reduce_min_sync(kAll,
                               count_larger<kGroups>(shared_.largest, word) < Share ? word : kAll);
    } else {  // every warp a part of them
      constexpr int kPart = kGroups / kLanes;
      const unsigned word = shared_.largest[thread() / kLanes];
      int n = count_larger<kPart>(shared_.largest + thread() % kLanes * kPart, word);
      n = onepass::group_fold(n, Add<int>(), kLanes);
      const unsigned limit = __reduce_min_sync(kAll, n < Share ? word : kAll);
      const unsigned most = __reduce_max_sync(kAll, word);
      if (lane() == 0) shared_.limits[warp()] = {limit, most};
      __syncthreads();
      const Limit of_warp = shared_.limits[lane() % kWarps];
      top = __reduce_max_sync(kAll, of_warp.top);
      return __reduce_min_sync(kAll, of_warp.limit);
    }
  }

  // False where there is no room.
  __device__ bool put(Key key) const {
    // Not atomicAdd: that the compiler turns into votes, so that a warp has one, and lanes that
    // find something are few.
    int at;
    asm volatile("atom.shared.add.u32 %0, [%1], 1;"
                 : "=r"(at)
                 : "r"(shared_address(&shared_.found_count))
                 : "memory");
    if (at < kKeys) shared_.found[at] = key;
    return at < kKeys;
  }

  // A thread's elements above v.
  __device__ void find(const Tile& tile, float v) const {
    constexpr int kPart = 32 / Row::kLanes < Row::kPacks ? 32 / Row::kLanes : Row::kPacks;
#pragma unroll
    for (int p = 0; p < Row::kPacks; p += kPart) {
      Held part[kPart];
#pragma unroll
      for (int i = 0; i < kPart; ++i) part[i] = tile[p + i];
      const auto* elements = reinterpret_cast<const Element*>(own_ + p * kThreads);
      const unsigned from = ~static_cast<unsigned>(row_.column(pack(p)));
#pragma unroll 1
      for (unsigned bits = above(part, v); bits != 0; bits &= bits - 1) {
        const int bit = __ffs(static_cast<int>(bits)) - 1;
        const float x = widen(elements[element_of_bit<Element, kThreads>(bit)]);
        if (!put(key_before(x, from, element_of_bit<Element, kStep>(bit)))) break;
      }
    }
  }

  __device__ unsigned before_target(const Tile& tile, const Target& target) const {
    unsigned count = 0;
#pragma unroll
    for (int p = 0; p < Row::kPacks; ++p) {
      if (!has(p)) continue;
      float x[Row::kLanes];
      Row::values(tile[p], x);
      const auto column = static_cast<int>(row_.column(pack(p)));
#pragma unroll
      for (int e = 0; e < Row::kLanes; ++e) count += target.follows(x[e], column + e) ? 1 : 0;
    }
    return count;
  }

  // By one warp.
  __device__ void send_tally(float m, bool ranks) const {
    const float d = onepass::group_fold(shared_.d[lane() % kWarps], Add<float>(), kWarps);
    unsigned before = 0;
    if (ranks) {
      before = onepass::group_fold(shared_.before[lane() % kWarps], Add<unsigned>(), kWarps);
    }
    // Elements that are finite, and −inf once they are scaled, weigh nothing: sums count from an
    // element, not from its z.
    const State<float> state{m, m == minus_infinity<float>() ? 0 : d};
    if (lane() == 0) send(Tally{state, before}, &shared_.tallies[rank_], shared_.gathered, 0);
  }

  // The word from which on there are K of those that were sent, if there are so many: a group of
  // neighbours in a run has its last key to speak for all of them, and groups with K keys between
  // them are enough.
  __device__ unsigned row_limit(int k) const {
    const int each = (k + kWarp / 2 - 1) / (kWarp / 2);
    const int place = (lane() / kSize + 1) * each - 1;
    const Key last = place < Share ? shared_.runs[lane() % kSize * Share + place] : 0;
    const auto word = static_cast<unsigned>(last >> 32);
    // In memory that is unused so far. Not where keys were found: who has none to send may
    // still be counting there.
    unsigned* const words = reinterpret_cast<unsigned*>(shared_.ordered) + warp() * kWarp;
    words[lane()] = word;
    __syncwarp();
    return __reduce_min_sync(kAll, count_larger<kWarp>(words, word) * each < k ? word : kAll);
  }

  __device__ void keep_left(unsigned limit) const {
    const Key key = shared_.runs[thread()];
    const bool stays = key != 0 && static_cast<unsigned>(key >> 32) >= limit;
    const unsigned lanes = __ballot_sync(kAll, stays);
    int at = 0;
    if (lane() == 0) at = atomicAdd(&shared_.left_count, __popc(lanes));
    at = __shfl_sync(kAll, at, 0) + __popc(lanes & ((1U << lane()) - 1));
    if (stays) shared_.left[at] = key;
  }

  // By one warp.
  __device__ void fold_tallies() const {
    const Tally total = group_fold(shared_.tallies[lane() % kSize], MergeTallies(), kSize);
    if (lane() == 0) shared_.total = total;
  }

  // By every thread, beside what it does to put keys in order.
  __device__ Tally total_of_four() const {
    constexpr MergeTallies merge;
    return merge(merge(shared_.tallies[0], shared_.tallies[1]),
                 merge(shared_.tallies[2], shared_.tallies[3]));
  }

  // All that was sent; how many. A key's place is how many are larger, for which a thread looks in
  // all runs at once.
  __device__ int order_all() const {
    const Key key = shared_.runs[thread()];
    int at[kSize] = {};
#pragma unroll
    for (int half = Share / 2; half > 0; half /= 2) {
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        at[r] += shared_.runs[r * Share + at[r] + half - 1] > key ? half : 0;
      }
    }
    int place = 0;
#pragma unroll
    for (int r = 0; r < kSize; ++r) {
      place += at[r] + (shared_.runs[r * Share + at[r]] > key ? 1 : 0);
    }
    if (key != 0) shared_.ordered[place] = key;
    return __syncthreads_count(key != 0);
  }

  // Those of it that may be among the K; how many. They are placed by counting, quicker than a
  // search in so many runs.
  __device__ int order_best(int k) const {
    keep_left(row_limit(k));
    __syncthreads();
    const int n = shared_.left_count;
    if (n > kKeys / 2) return order_all();
    const auto put = [this](int place, Key key) { shared_.ordered[place] = key; };
    if (n <= kKeys / 4) {
      place_keys<4>(shared_.left, n, put);
    } else {
      place_keys<2>(shared_.left, n, put);
    }
    __syncthreads();
    return n;
  }

  Shared& shared_;
  Held* own_;  // the thread's packs, kThreads apart
  const Row& row_;
  int rank_;
};

// By the cluster's team, in the same memory. Called, not inlined: it is seldom needed, and much
// code between what a guess does and what comes of it. It takes copies, so that no caller's
// registers have to be in memory.
template <class Row>
__device__ __noinline__ Selected select_again(Row row, Team team, int parts, int k, Target target,
                                              bool ranks) {
  BestKeys best = team.best_of(k);
  return team.select(Part<Row>(row, parts, team.rank()), best, target, ranks);
}

// What a guess asked for, or else by the cluster's team.
template <class Row, int Share>
__device__ inline Selected select_guessed(const Guess<Row, Share>& guess, const Row& row,
                                          Team::Shared& shared, const Team::Memory& memory,
                                          const CommonOf<FlatPlace>& common, const Meeting& meeting,
                                          int k, const Target& target, bool ranks) {
  static_assert(sizeof(typename Guess<Row, Share>::Shared) + sizeof(Team::Shared) +
                    gpu_select::kGuessAnswerBytes <=
                gpu_select::kGuessBytes);
  guess.begin();
  const Team team(shared, memory, meeting);
  Selected selected;
  if (guess.select(k, target, ranks, selected)) return selected;
  __syncwarp();
  guess.yield_memory();
  cluster::say_begun();  // no block leaves before all have selected
  return select_again(row, team, common.size, k, target, ranks);
}

#endif

// Calls body.operator()<Row, Share>().
template <class Body>
Status with_guess(const RowArgs& args, const gpu_select::SelectLaunch& select, Body body) {
  return with_stored(args, [&]<class In>(Type<In>) {
    const auto with_row = [&]<class Row>(Type<Row>) {
      constexpr int kAll = gpu_select::kGuessKeys;
      return select.cluster == 16 ? body.template operator()<Row, kAll / 16>()
                                  : body.template operator()<Row, kAll / 4>();
    };
    return select.packs == gpu_select::kFewPacks
               ? with_row(Type<SelectRow<In, In, gpu_select::kFewPacks>>{})
               : with_row(Type<SelectRow<In, In, gpu_select::kManyPacks>>{});
  });
}

}  // namespace onepass::ops::select
