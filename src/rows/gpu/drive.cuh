// Fold, climb, finish on a GPU: the kernels that every row op runs in, one a regime.
//
// A Row brings
//   Args                          what it is made from
//   Join, Partial = Join::Value   what a part of a row folds to
//   Stored, Held                  a pack as it lies in memory, and as a thread or a block keeps it
//   Row(args, row), packs()
//   fetch(i), nothing(), hold(stored, i, end)   from memory; past the end; what is kept of it
//   fold(held[P], live)           -> Partial; packs from `live` on are empty in the whole warp
//   writes(), scale(total), finish(i, held, scale)   writes pack i
//   edges(), fetch_edge(e), fold_edge(edge), finish_edge(e, edge, scale) elements that no pack
//   holds conclude(total) by one thread: writes what there is one of a row
//   ask(i, slot)                  a dense row's: a pack on its way to shared memory
// and gets groups of lanes, blocks and clusters from here, the grid from grid.cuh. Every pack is
// read once and kept on chip until its row's total is known.
#pragma once

#include "core/cuda/dependent.cuh"
#include "merge/cluster.cuh"
#include "merge/running.cuh"
#include "merge/thread.cuh"
#include "merge/warp_rows.cuh"
#include "rows/args.hpp"
#include "rows/gpu/plan.hpp"
#include "rows/packs.hpp"

namespace onepass {

static_assert(gpu_rows::kMostCluster == kMostCluster && gpu_rows::kBlockThreads <= 16 * kWarp,
              "a block has a slot for each warp of its cluster");

// Whether a Row takes any options.
template <class Row>
inline constexpr bool kTakesAny = std::is_same_v<typename Row::Args, RowArgs>;

// Whether a thread has all of its packs first, first + step, … before `end`. Most do, and need not
// look at each: of 18 instructions an element of f16 that was more than one.
template <int P>
__device__ inline bool has_all(int first, int step, int end) {
  return first + (P - 1) * step < end;
}

// Packs first, first + step, … before `end`: all on their way before the first is used.
template <class Row, int P>
__device__ inline void hold_packs(const Row& row, int first, int step, int end,
                                  typename Row::Held (&held)[P]) {
  typename Row::Stored stored[P];
  if (!kTakesAny<Row> && has_all<P>(first, step, end)) {
#pragma unroll
    for (int p = 0; p < P; ++p) stored[p] = row.fetch(first + p * step);
  } else {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      stored[p] = first + p * step < end ? row.fetch(first + p * step) : Row::nothing();
    }
  }
#pragma unroll
  for (int p = 0; p < P; ++p) held[p] = row.hold(stored[p], first + p * step, end);
}

// How many of a thread's P packs any thread of its warp has, the warp's first being `of_warp`: what
// comes after them all can leave out.
template <int P>
__device__ inline int live_packs(int of_warp, int step, int end) {
  if (has_all<P>(of_warp, step, end)) return P;
  int live = 0;
#pragma unroll
  for (int p = 0; p < P - 1; ++p) live += of_warp + p * step < end ? 1 : 0;
  return live;
}

template <class Row, int P>
__device__ inline void finish_packs(const Row& row, int first, int step, int end,
                                    const typename Row::Held (&held)[P],
                                    const typename Row::Scale& scale) {
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (first + p * step < end) row.finish(first + p * step, held[p], scale);
  }
}

// The edges first, first + step, …; the first of them was fetched with the packs.
template <class Row>
__device__ inline void fold_edges(const Row& row, int first, int step, typename Row::Edge edge,
                                  typename Row::Partial& mine) {
  if (first >= row.edges()) return;
  mine = typename Row::Join()(mine, row.fold_edge(edge));
  for (int e = first + step; e < row.edges(); e += step) {
    mine = typename Row::Join()(mine, row.fold_edge(row.fetch_edge(e)));
  }
}

template <class Row>
__device__ inline void finish_edges(const Row& row, int first, int step, typename Row::Edge edge,
                                    const typename Row::Scale& scale) {
  if (first >= row.edges()) return;
  row.finish_edge(first, edge, scale);
  for (int e = first + step; e < row.edges(); e += step) {
    row.finish_edge(e, row.fetch_edge(e), scale);
  }
}

// Blocks of kGroupThreads whose registers a processor is to have room for.
template <class Row>
constexpr int groups_at_once(int rows) {
  return kTakesAny<Row> ? 2 : rows > 1 || sizeof(typename Row::Held) > kPackBytes ? 4 : 5;
}

// Neighbouring lanes that share rows, R of them in turn. Rows that are on their way together lie
// side by side. A group past the last row goes along, for the warp's shuffles, with the last row
// again. Rows are counted with 31 bits (gpu_rows::kMostBlockRows).
template <int R>
class Group {
 public:
  __device__ Group(int lanes_log, std::int64_t rows)
      : lanes_(1 << lanes_log), groups_(kWarp >> lanes_log), rows_(static_cast<int>(rows)) {
    const auto thread = static_cast<int>(threadIdx.x);
    const auto warp = static_cast<int>(blockIdx.x * (blockDim.x / kWarp)) + thread / kWarp;
    lane_ = thread & (lanes_ - 1);
    first_ = warp * (groups_ * R) + (thread % kWarp >> lanes_log);
  }

  __device__ int lanes() const { return lanes_; }
  __device__ int lane() const { return lane_; }
  __device__ bool has(int turn) const { return first_ + turn * groups_ < rows_; }
  __device__ int row(int turn) const { return min(first_ + turn * groups_, rows_ - 1); }

 private:
  int lanes_, groups_;  // of a warp
  int rows_;
  int lane_, first_;
};

// 2^lanes_log lanes per row, R rows a group of them.
template <class Row, int P, int R>
__global__ void __launch_bounds__(gpu_rows::kGroupThreads, groups_at_once<Row>(R))
    group_rows(const __grid_constant__ typename Row::Args args, int lanes_log) {
  using Join = typename Row::Join;
  await_previous();
  const Group<R> group(lanes_log, args.end_row - args.first_row);
  const int lanes = group.lanes();
  const int lane = group.lane();
  // A row with any options is long to find, and comes alone; others are found again in each loop,
  // which costs no registers.
  static_assert(!kTakesAny<Row> || R == 1);
  const Row first(args, args.first_row + group.row(0));
  const auto row_of_turn = [&](int r) {
    if constexpr (kTakesAny<Row>) {
      return std::cref(first);
    } else {
      return Row(args, args.first_row + group.row(r));
    }
  };
  typename Row::Held held[R][P];
  typename Row::Edge edge[R];
  typename Row::Partial total[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const Row& row = row_of_turn(r);
    edge[r] = row.fetch_edge(lane);
    hold_packs(row, lane, lanes, row.packs(), held[r]);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const Row& row = row_of_turn(r);
    total[r] = row.fold(held[r], live_packs<P>(0, lanes, row.packs()));
    fold_edges(row, lane, lanes, edge[r], total[r]);
  }
  group_fold(total, Join(), lanes);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (!group.has(r)) return;
    const Row& row = row_of_turn(r);
    if (row.writes()) {
      const typename Row::Scale scale = row.scale(total[r]);
      finish_packs(row, lane, lanes, row.packs(), held[r], scale);
      finish_edges(row, lane, lanes, edge[r], scale);
    }
    if (lane == 0) row.conclude(total[r]);
  }
}

// One block's chunk of a row: P packs a thread in registers; a Long one goes on in shared memory,
// as far as `staged` packs, and what is left is read a second time, last first, so that L2 has most
// of it. A thread finds in the stage what it put there itself. The first chunk has the row's edges.
template <class Row, int P, bool Long>
class Chunk {
 public:
  using Join = typename Row::Join;
  using Partial = typename Row::Partial;
  using Held = typename Row::Held;

  __device__ Chunk(const Row& row, int size, int index, Held* stage, int staged)
      : row_(row), stage_(stage), has_edges_(index == 0) {
    const int begin = min(size * index, row.packs());
    end_ = min(begin + size, row.packs());
    first_ = begin + thread();
    stage_begin_ = begin + P * step();
    stage_end_ = min(end_, stage_begin_ + staged);
  }

  __device__ Partial fold() {
    if (has_edges_) edge_ = row_.fetch_edge(thread());
    hold_packs(row_, first_, step(), end_, held_);
    Partial mine = row_.fold(held_, live_packs<P>(of_warp(first_), step(), end_));
    if constexpr (Long) {
      Running<Join> running(mine);
      for (int i = first_ + P * step(); i < end_; i += kTile * step()) {
        Held tile[kTile];
        hold_packs(row_, i, step(), end_, tile);
        if (row_.writes()) {
#pragma unroll
          for (int p = 0; p < kTile; ++p) {
            const int at = i + p * step();
            if (at < stage_end_) stage_[at - stage_begin_] = tile[p];
          }
        }
        running.take(row_.fold(tile, live_packs<kTile>(of_warp(i), step(), end_)));
      }
      mine = running.all();
    }
    if (has_edges_) fold_edges(row_, thread(), step(), edge_, mine);
    return mine;
  }

  __device__ void finish(const Partial& total) const {
    if (!row_.writes()) return;
    const typename Row::Scale scale = row_.scale(total);
    if constexpr (Long) {
      const int tile_step = kTile * step();
      int i = first_ + P * step();
      while (i + tile_step < end_) i += tile_step;
      for (; i >= first_ + P * step(); i -= tile_step) {
        Held tile[kTile];
#pragma unroll
        for (int p = 0; p < kTile; ++p) {
          const int at = i + p * step();
          if (at < stage_end_) {
            tile[p] = stage_[at - stage_begin_];
          } else if (at < end_) {
            tile[p] = row_.hold(row_.fetch(at), at, end_);
          }
        }
        finish_packs(row_, i, step(), end_, tile, scale);
      }
    }
    finish_packs(row_, first_, step(), end_, held_, scale);
    if (has_edges_) finish_edges(row_, thread(), step(), edge_, scale);
  }

 private:
  static constexpr int kTile = sizeof(Held) == sizeof(typename Row::Stored) ? 4 : 2;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int step() { return static_cast<int>(blockDim.x); }
  __device__ static int of_warp(int i) { return i - thread() % kWarp; }

  const Row& row_;
  Held* stage_;
  bool has_edges_;
  int first_, end_;  // this thread's first pack, and the chunk's end
  int stage_begin_, stage_end_;
  Held held_[P];
  typename Row::Edge edge_{};
};

// Blocks of kBlockThreads whose registers a processor is to have room for.
template <class Row>
constexpr int blocks_at_once(int packs, bool is_long) {
  if (kTakesAny<Row>) return 1;
  const int units = packs * static_cast<int>(sizeof(typename Row::Held)) / kPackBytes;
  if (sizeof(typename Row::Held) > kPackBytes) return units <= 8 ? 2 : 1;
  return is_long ? 2 : units <= 2 ? 4 : units <= 4 ? 3 : 2;
}

// A block per row, or a cluster of blocks, each with its chunk of `size` packs.
template <class Row, int P, bool Long>
__global__ void __launch_bounds__(gpu_rows::kBlockThreads, blocks_at_once<Row>(P, Long))
    block_rows(const __grid_constant__ typename Row::Args args, int size, int staged) {
  using Fold = ClusterFold<typename Row::Join>;
  extern __shared__ __align__(16) std::byte stage[];
  __shared__ typename Fold::Scratch scratch;
  const Fold cluster(scratch);
  await_previous();
  const Row row(args, args.first_row + cluster.index());
  Chunk<Row, P, Long> chunk(row, size, cluster.rank(), reinterpret_cast<typename Row::Held*>(stage),
                            staged);
  const auto total = cluster.all(chunk.fold());
  chunk.finish(total);
  if (cluster.rank() == 0 && threadIdx.x == 0) row.conclude(total);
}

// A long row of which nothing is written, so that nothing is kept either.
template <class Row>
__global__ void __launch_bounds__(gpu_rows::kBlockThreads, 2)
    fold_rows(const __grid_constant__ typename Row::Args args, int size) {
  using Join = typename Row::Join;
  using Fold = ClusterFold<Join>;
  __shared__ typename Fold::Scratch scratch;
  const Fold cluster(scratch);
  await_previous();
  const Row row(args, args.first_row + cluster.index());
  const bool has_edges = cluster.rank() == 0;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);
  const int begin = min(size * cluster.rank(), row.packs());
  const int end = min(begin + size, row.packs());
  const typename Row::Edge edge = has_edges ? row.fetch_edge(thread) : typename Row::Edge{};
  Running<Join> running(Join::identity());
  constexpr int kTile = gpu_rows::kFoldPacks;
  for (int i = begin; i + thread / kWarp * kWarp < end; i += kTile * step) {
    typename Row::Held tile[kTile];
    hold_packs(row, i + thread, step, end, tile);
    running.take(row.fold(tile, live_packs<kTile>(i + thread / kWarp * kWarp, step, end)));
  }
  typename Row::Partial mine = running.all();
  if (has_edges) fold_edges(row, thread, step, edge, mine);
  const auto total = cluster.all(mine);
  if (has_edges && thread == 0) row.conclude(total);
}

}  // namespace onepass
