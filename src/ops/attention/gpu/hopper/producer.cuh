// The Hopper kernel's tile, what lies in shared memory, and what loads it. What
// computes: mainloop.cuh.
#pragma once

#include "core/cuda/tma.cuh"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/hopper/tile_scheduler.hpp"
#include "ops/attention/gpu/online.cuh"
#include "ops/attention/sight.hpp"

namespace onepass::ops::attention::hopper {

inline constexpr int kWarpgroup = 128;
inline constexpr int kRows = 64;     // of queries, a warpgroup
inline constexpr int kColumns = 64;  // of 16 bits: a swizzled row of 128 bytes

inline constexpr int kMostShared = 225 * 1024;  // of the 227 KB that a block can have

// One block: a warpgroup that loads, and some that compute 64 rows of queries each. Ragged:
// sequences have lengths of their own.
template <int Dim, int Groups, int Keys, bool Ragged = false>
struct Tile {
  static constexpr bool kRagged = Ragged;
  static constexpr int kDim = Dim;
  static constexpr int kGroups = Groups;
  static constexpr int kQueries = Groups * kRows;
  static constexpr int kKeys = Keys;
  static constexpr int kStages = Dim == 64 ? 4 : 2;  // of keys and of values
  static constexpr int kThreads = (Groups + 1) * kWarpgroup;
  static constexpr int kReaders = Groups * kWarpgroup / 32;        // of what is loaded: warps
  static constexpr int kPanels = (Dim + kColumns - 1) / kColumns;  // of 64 columns
  static constexpr int kQueryBytes = kPanels * kColumns * 2 * kQueries;
  static constexpr int kKeyBytes = kPanels * kColumns * 2 * Keys;
  // The next tile of queries comes early where there is room for it.
  static constexpr int kQueryStages =
      2 * kQueryBytes + 2 * kStages * kKeyBytes <= kMostShared ? 2 : 1;
  // And results go by the copy engine.
  static constexpr bool kStaged =
      (kQueryStages + 1) * kQueryBytes + 2 * kStages * kKeyBytes <= kMostShared;
  // They come out of what the block was launched with: as many as fit for all of its
  // threads, in eights.
  static constexpr int kLoaderRegisters = Groups == 3 ? 32 : Ragged ? 40 : 24;
  static constexpr int kRegisters = Groups == 3 ? 160 : Ragged ? 232 : 240;
  static_assert((kLoaderRegisters + Groups * kRegisters) * kWarpgroup <=
                65536 / kThreads / 8 * 8 * kThreads);
};

// A tile of queries and the keys that it sees.
struct Job {
  int head;         // −1: there are no more
  int batch;        // in the tensors of q and o
  int first_query;  // in its sequence; may be negative
  KeyTiles keys;
  // Where sequences have lengths of their own:
  Sight sight;
  int k_batch;
  int q_token, k_token;  // the first of the sequence

  __device__ bool any() const { return head >= 0; }
  __device__ bool sees() const { return keys.begin < keys.end; }
};

// Known at a time: those with queries in shared memory, one before, whose sums may be under way,
// and the next. A power of two.
inline constexpr unsigned kJobs = 8;

struct Params {
  CUtensorMap q, k, v, out;
  Schedule schedule;
  int lead;     // rows of a head's first tile before its first query
  Sight sight;  // of a sequence, where all are alike; otherwise of all tokens
  Places q_offsets, kv_offsets, lengths;
  int batch;
  int dim;                 // the tile's
  Divisor heads, sharing;  // of q, and those that share one of k and v
  bool packed;             // queries of all sequences in one row of tokens
  bool plain;              // z = s · scale, and scale > 0
  float scale;
  Cap cap;  // where not
  Heads o, lse, sinks;
};

// An offset or a length. What cannot be is taken for the nearest that can, in 32 bits: a loader
// has few registers.
__device__ inline int place(const Places& places, int i, int most) {
  const auto* words = static_cast<const int*>(places.data);
  return between(0, words[places.dtype == DType::i64 ? 2 * i : i], most);
}

// Finds a tile of queries among those of all sequences side by side: the tiles of each follow those
// of the one before, its last first. Within a head tiles are asked for in rising order, so that the
// search goes on where it was.
class Finder {
 public:
  // False: there are fewer tiles than were counted with.
  template <class Tile>
  __device__ bool find(const Params& p, int tile, int& batch, int& own) {
    if (tile < before_) batch_ = before_ = 0;
    for (; batch_ < p.batch; ++batch_) {
      const int from = place(p.q_offsets, batch_, p.sight.queries);
      const int to = place(p.q_offsets, batch_ + 1, p.sight.queries);
      const int tiles = to > from ? (to - from + Tile::kQueries - 1) / Tile::kQueries : 0;
      if (tile < before_ + tiles) {
        batch = batch_;
        own = before_ + tiles - 1 - tile;
        return true;
      }
      before_ += tiles;
    }
    return false;
  }

 private:
  int batch_ = 0;
  int before_ = 0;  // tiles of the sequences before
};

template <class Stored, class Tile>
struct Shared {
  template <int Rows>
  using Panels = Stored[Tile::kPanels][Rows][kColumns];

  alignas(1024) Panels<Tile::kQueries> q[Tile::kQueryStages];
  alignas(1024) Panels<Tile::kKeys> k[Tile::kStages];
  alignas(1024) Panels<Tile::kKeys> v[Tile::kStages];
  Panels<Tile::kStaged ? Tile::kQueries : 1> o;  // of which each warpgroup has its rows
  tma::Ring<Tile::kQueryStages> q_ring;
  tma::Ring<Tile::kStages> k_ring, v_ring;
  Job jobs[kJobs];

  __device__ Job& job(unsigned number) { return jobs[number % kJobs]; }
};

// Where a sequence begins, and how many of the tokens are its own.
__device__ inline int span(const Places& offsets, int batch, int& tokens) {
  if (!offsets) return 0;
  const int first = place(offsets, batch, tokens);
  const int end = place(offsets, batch + 1, tokens);
  tokens = end > first ? end - first : 0;
  return first;
}

// The tile of queries that comes next, and with it what to do: no thread waits for that here.
template <class Tile>
__device__ inline void next_job(const Params& p, Walk& walk, Finder& finder, Job& job) {
  job.head = -1;
  while (job.head < 0 && !walk.done()) {
    const Work work = walk.work();
    walk.advance();
    int batch = work.head / p.heads;
    int tile = work.query_tile;
    if constexpr (Tile::kRagged) {
      const int number = p.schedule.query_tiles - 1 - work.query_tile;
      if (p.packed && !finder.template find<Tile>(p, number, batch, tile)) continue;
    }
    Sight sight = p.sight;
    if constexpr (Tile::kRagged) {
      job.q_token = span(p.q_offsets, batch, sight.queries);
      job.k_token = span(p.kv_offsets, batch, sight.keys);
      if (p.lengths) sight.keys = place(p.lengths, batch, sight.keys);
      job.k_batch = p.kv_offsets ? 0 : batch;
      job.sight = sight;
    }
    job.head = work.head % p.heads;
    job.batch = Tile::kRagged && p.packed ? 0 : batch;
    job.first_query = tile * Tile::kQueries - p.lead;
    job.keys = key_tiles(sight, job.first_query, Tile::kQueries, Tile::kKeys);
  }
}

// All that a block reads, in the order in which it is computed with. Keys go from the last tile to
// the first, because masks by place mostly cut the last. Where there is room, the queries of a tile
// come while the one before is computed.
template <class Stored, class Tile>
__device__ inline void load_all(const Params& p, Shared<Stored, Tile>& shared) {
  constexpr bool kEarly = Tile::kQueryStages > 1;
  const auto load = [](auto& panels, const CUtensorMap& map, int token, int head, int batch,
                       Mbarrier& barrier) {
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      tma::load(panels[i], map, {i * kColumns, token, head, batch}, barrier);
    }
  };
  // Its place is free, and with its bytes the job becomes known.
  const auto say = [&](unsigned number) {
    const Job& job = shared.job(number);
    const bool any = job.any() && job.sees();
    Mbarrier& barrier = shared.q_ring.fill(number, any ? Tile::kQueryBytes : 0);
    if (!any) return;
    const int query = job.first_query + (Tile::kRagged ? job.q_token : 0);
    load(shared.q[shared.q_ring.stage(number)], p.q, query, job.head, job.batch, barrier);
  };
  Walk walk(p.schedule, blockIdx.x, gridDim.x);
  Finder finder;
  next_job<Tile>(p, walk, finder, shared.job(0));
  if (kEarly) say(0);
  unsigned step = 0;
  unsigned number = 0;
  for (; shared.job(number).any(); ++number) {
    const Job& job = shared.job(number);
    const int head = job.head / p.sharing;
    const int batch = Tile::kRagged ? job.k_batch : job.batch;
    const int token = Tile::kRagged ? job.k_token : 0;
    const int begin = job.keys.begin;
    const int end = job.keys.end;
    // The next is worked out when the copies of this one are on their way.
    const auto look_ahead = [&] {
      next_job<Tile>(p, walk, finder, shared.job(number + 1));
      if (kEarly) say(number + 1);
    };
    for (int tile = end - 1; tile >= begin; --tile, ++step) {
      const int key = token + tile * Tile::kKeys;
      const int stage = shared.k_ring.stage(step);
      load(shared.k[stage], p.k, key, head, batch, shared.k_ring.fill(step, Tile::kKeyBytes));
      if (tile == end - 1 && !kEarly) say(number);
      load(shared.v[stage], p.v, key, head, batch, shared.v_ring.fill(step, Tile::kKeyBytes));
      if (tile == end - 1 && kEarly) look_ahead();
    }
    if (begin == end && !kEarly) say(number);
    if (begin == end || !kEarly) look_ahead();
  }
  if (!kEarly) say(number);
}

}  // namespace onepass::ops::attention::hopper
