// Rows that follow one another through a team of blocks: while one is computed and written, the
// next is on its way to shared memory. For dense rows, where a team has several.
#pragma once

#include "core/cuda/pack.cuh"
#include "merge/running.cuh"
#include "merge/thread.cuh"
#include "rows/gpu/launch.cuh"
#include "rows/packs.hpp"

namespace onepass {

// One block's chunk of row after row. A thread has every kThreads-th pack of it: it asks for them,
// and finds them in slots of its own, so that it waits for no other. The first P are in registers
// while the row is worked on, and their slots free for the next row at once; every other slot is
// when its pack is written. A chunk of more packs than slots (Long) has the first P loaded past the
// slots, and what they do not hold read again, last first, so that L2 has most of it.
template <class Row, int P, bool Long>
class Stream {
 public:
  using Join = typename Row::Join;
  using Partial = typename Row::Partial;
  using Held = typename Row::Held;
  static_assert(std::is_same_v<Held, typename Row::Stored>, "packs are kept as they are stored");

  // Chunks of `size` packs, of which this block has the index-th; `depth` slots a
  // thread, whole tiles.
  __device__ Stream(int size, int index, Held* slots, int depth)
      : size_(size), index_(index), slots_(slots + threadIdx.x), slots_end_(kFirstSlot + depth) {}

  // Asks for the first row; every other is asked for while the one before is worked on.
  __device__ void begin(const Row& row) {
    const Packs packs = packs_of(row);
    for (int k = kFirstSlot; k < slots_end_; ++k) ask(row, packs, k);
    if (index_ == 0) next_edge_ = row.fetch_edge(thread());
  }

  __device__ Partial fold(const Row& row, const Row& next, bool more) {
    const Packs packs = packs_of(row);
    edge_ = next_edge_;
    if constexpr (Long) hold_packs(row, packs.first, kThreads, packs.end, held_);
    wait_for_copies();
    if constexpr (!Long) lift(packs, 0, held_);
    Running<Join> running(row.fold(held_, packs.template live<P>(0)));
    if (more && !is_messenger()) ask_ahead(next);
    Held tile[kTile];
    for (int k = P; packs.some(k); k += kTile) {
      if (!Long || k < slots_end_) {
        lift(packs, k, tile);
      } else {
        hold_packs(row, packs.at(k), kThreads, packs.end, tile);
      }
      running.take(row.fold(tile, packs.template live<kTile>(k)));
    }
    Partial mine = running.all();
    if (index_ == 0) fold_edges(row, thread(), kThreads, edge_, mine);
    return mine;
  }

  __device__ void finish(const Row& row, const Partial& total, const Row& next, bool more) {
    if (more && is_messenger()) ask_ahead(next);
    const Packs packs = packs_of(row);
    const Packs ahead = packs_of(next);
    const typename Row::Scale scale = row.scale(total);
    Held tile[kTile];
    if (Long && row.writes()) {
      int k = slots_end_;
      while (packs.some(k + kTile)) k += kTile;
      for (; k >= slots_end_; k -= kTile) {
        hold_packs(row, packs.at(k), kThreads, packs.end, tile);
        finish_packs(row, packs.at(k), kThreads, packs.end, tile, scale);
      }
    }
    for (int k = P; k < slots_end_; k += kTile) {
      lift(packs, k, tile);
      if (row.writes()) finish_packs(row, packs.at(k), kThreads, packs.end, tile, scale);
      if (more) {
#pragma unroll
        for (int p = 0; p < kTile; ++p) ask(next, ahead, k + p);
      }
    }
    if (!row.writes()) return;
    finish_packs(row, packs.first, kThreads, packs.end, held_, scale);
    if (index_ == 0) finish_edges(row, thread(), kThreads, edge_, scale);
  }

 private:
  static constexpr int kThreads = gpu_rows::kBlockThreads;
  static constexpr int kTile = gpu_rows::kStreamTile;
  static constexpr int kFirstSlot = Long ? P : 0;  // a thread's packs before it have none

  // A thread's packs of a chunk: at(0), at(1), … before `end`.
  struct Packs {
    int first, end;
    __device__ int at(int k) const { return first + k * kThreads; }
    __device__ bool has(int k) const { return at(k) < end; }
    __device__ int of_warp(int k) const { return at(k) - thread() % kWarp; }
    __device__ bool some(int k) const { return of_warp(k) < end; }  // in this warp
    template <int N>
    __device__ int live(int k) const {
      return live_packs<N>(of_warp(k), kThreads, end);
    }
  };

  // The first warp tells the team's other blocks of this one, with a fence, which would wait for
  // all that it had asked for.
  __device__ static bool is_messenger() { return threadIdx.x < kWarp; }

  __device__ void ask_ahead(const Row& next) {
    const Packs ahead = packs_of(next);
#pragma unroll
    for (int k = kFirstSlot; k < P; ++k) ask(next, ahead, k);
    if (index_ == 0) next_edge_ = next.fetch_edge(thread());
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  __device__ Packs packs_of(const Row& row) const {
    const int begin = min(size_ * index_, row.packs());
    return {begin + thread(), min(begin + size_, row.packs())};
  }

  __device__ Held& slot(int k) const { return slots_[(k - kFirstSlot) * kThreads]; }

  __device__ void ask(const Row& row, Packs packs, int k) const {
    if (packs.has(k)) row.ask(packs.at(k), &slot(k));
  }

  template <int N>
  __device__ void lift(Packs packs, int k, Held (&to)[N]) const {
#pragma unroll
    for (int p = 0; p < N; ++p) to[p] = packs.has(k + p) ? slot(k + p) : Row::nothing();
  }

  int size_, index_;
  Held* slots_;
  int slots_end_;
  Held held_[P];
  typename Row::Edge edge_{}, next_edge_{};
};

template <class Row>
inline constexpr int kStreamPacks = gpu_rows::kStreamBytes /
                                    static_cast<int>(sizeof(typename Row::Held));

// The rows of a team, one after the other. A Team knows which it is, how many there are, which of
// its blocks this one is, and folds what they all have. Every team has a row.
template <class Row, bool Long, class Team>
__device__ inline void stream_rows(const typename Row::Args& args, const Team& team, int size,
                                   int depth) {
  extern __shared__ __align__(16) std::byte slots[];
  Stream<Row, kStreamPacks<Row>, Long> stream(size, team.rank(),
                                              reinterpret_cast<typename Row::Held*>(slots), depth);
  std::int64_t at = args.first_row + team.index();
  stream.begin(Row(args, at));
  bool more = true;
  for (int turn = 0; more; ++turn, at += team.count()) {
    more = at + team.count() < args.end_row;
    const Row row(args, at);
    const Row next(args, more ? at + team.count() : at);
    const auto total = team.all(stream.fold(row, next, more), turn);
    stream.finish(row, total, next, more);
    if (team.rank() == 0 && threadIdx.x == 0) row.conclude(total);
  }
}

}  // namespace onepass
