// The Hopper kernel's tile, what lies in shared memory, and what loads it. What computes: hopper_consumer.cuh.
#pragma once

#include "core/tma.cuh"
#include "dispatch/attention_tiles.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/online.cuh"

namespace onepass::ops::attention::hopper {

inline constexpr int kWarpgroup = 128;
inline constexpr int kRows = 64;     // of queries, a warpgroup
inline constexpr int kColumns = 64;  // of 16 bits: a swizzled row of 128 bytes

inline constexpr int kMostShared = 225 * 1024;  // of the 227 KB that a block can have

// One block: a warpgroup that loads, and some that compute 64 rows of queries each.
template <int Dim, int Groups, int Keys>
struct Tile {
  static constexpr int kDim = Dim;
  static constexpr int kGroups = Groups;
  static constexpr int kQueries = Groups * kRows;
  static constexpr int kKeys = Keys;
  static constexpr int kStages = 2;
  static constexpr int kThreads = (Groups + 1) * kWarpgroup;
  static constexpr int kPanels = (Dim + kColumns - 1) / kColumns;  // of 64 columns
  static constexpr int kQueryBytes = kPanels * kColumns * 2 * kQueries;
  static constexpr int kKeyBytes = kPanels * kColumns * 2 * Keys;
  // The next tile of queries comes early where there is room for it.
  static constexpr int kQueryStages =
      2 * kQueryBytes + 2 * kStages * kKeyBytes <= kMostShared ? 2 : 1;
  // And results go by the copy engine.
  static constexpr bool kStaged =
      (kQueryStages + 1) * kQueryBytes + 2 * kStages * kKeyBytes <= kMostShared;
  // They come out of what the block was launched with: as many as fit for all of its threads, in eights.
  static constexpr int kLoaderRegisters = Groups == 2 ? 24 : 32;
  static constexpr int kRegisters = Groups == 2 ? 240 : 160;
  static_assert((kLoaderRegisters + Groups * kRegisters) * kWarpgroup <=
                65536 / kThreads / 8 * 8 * kThreads);
};

// A tile of queries and the keys that it sees.
struct Job {
  int batch, head;  // batch −1: there are no more
  int first_query;
  attention_tiles::KeyTiles keys;
};

// Known at a time: those with queries in shared memory, and the one before, whose sums may be under way.
inline constexpr unsigned kJobs = 4;

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

  __device__ const Job& job(unsigned number) const { return jobs[number % kJobs]; }

  // By the loader: what comes next, with so many bytes of queries.
  __device__ Mbarrier& say(unsigned number, const Job& job, int bytes) {
    const int stage = q_ring.stage(number);
    q_ring.wait_empty(number);
    jobs[number % kJobs] = job;
    tma::arrive_and_expect(q_ring.full[stage], bytes);
    return q_ring.full[stage];
  }
};

struct Params {
  CUtensorMap q, k, v, out;
  attention_tiles::Schedule schedule;
  attention_tiles::Sight sight;
  int heads, sharing;  // heads of a batch; of them, that share one of k and v
  bool plain;          // z = s · scale, and scale > 0
  float scale;
  Cap cap;  // where not
  Heads o, lse, sinks;
};

// The tile of queries that comes next, and with it what to do: that costs divisions, which nobody waits for here.
template <class Tile>
__device__ inline Job next_job(const Params& p, attention_tiles::Walk& walk) {
  if (walk.done()) return {.batch = -1};
  const attention_tiles::Work work = walk.work();
  walk.advance();
  Job job{work.head / p.heads, work.head % p.heads, work.query_tile * Tile::kQueries};
  job.keys = attention_tiles::key_tiles(p.sight, job.first_query, Tile::kQueries, Tile::kKeys);
  return job;
}

// All that a block reads, in the order in which it is computed with. Keys go from the last tile to the first, because
// masks by place mostly cut the last. Where there is room, the queries of a tile come while the one before is computed.
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
  unsigned said = 0, step = 0;
  const auto say = [&](const Job& job) {
    const bool any = job.batch >= 0 && job.keys.begin < job.keys.end;
    Mbarrier& barrier = shared.say(said, job, any ? Tile::kQueryBytes : 0);
    if (any) {
      load(shared.q[shared.q_ring.stage(said)], p.q, job.first_query, job.head, job.batch, barrier);
    }
    ++said;
  };
  attention_tiles::Walk walk(p.schedule, blockIdx.x, gridDim.x);
  Job job = next_job<Tile>(p, walk);
  if (kEarly) say(job);
  while (job.batch >= 0) {
    const Job after = next_job<Tile>(p, walk);
    const int kv_head = job.head / p.sharing;
    for (int tile = job.keys.end - 1; tile >= job.keys.begin; --tile, ++step) {
      const bool first = tile == job.keys.end - 1;
      const int key = tile * Tile::kKeys;
      const int stage = shared.k_ring.stage(step);
      load(shared.k[stage], p.k, key, kv_head, job.batch,
           shared.k_ring.fill(step, Tile::kKeyBytes));
      if (first && !kEarly) say(job);
      load(shared.v[stage], p.v, key, kv_head, job.batch,
           shared.v_ring.fill(step, Tile::kKeyBytes));
      if (first && kEarly) say(after);
    }
    if (job.keys.begin == job.keys.end) say(kEarly ? after : job);
    job = after;
  }
  if (!kEarly) say(job);
}

}  // namespace onepass::ops::attention::hopper
