// The tiles of the Hopper backward, what lies in shared memory, and what all of its warps know.
#pragma once

#include "core/cuda/tma.cuh"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/gpu/backward/hopper/plan.hpp"
#include "ops/attention/gpu/backward/hopper/turns.hpp"
#include "ops/attention/gpu/backward/rows.cuh"

namespace onepass::ops::attention::backward_hopper {

inline constexpr int kWarpgroup = 128;
inline constexpr int kColumns = 64;  // of 16 bits: a swizzled row of 128 bytes
inline constexpr int kGroups = 2;    // of 64 keys each
inline constexpr int kReaders = kGroups * kWarpgroup / 32;

template <int Dim>
struct Tile {
  static constexpr int kDim = Dim;
  static constexpr int kPanels = Dim / kColumns;
  static constexpr int kKeys = gpu_attention::kHopperBackwardKeys;
  static constexpr int kQueries = gpu_attention::backward_hopper_queries(Dim);
  static constexpr int kQueryPanels = kQueries / kColumns;
  static constexpr int kThreads = gpu_attention::kHopperBackwardThreads;
  static constexpr int kStages = 2;  // of queries and their gradients
  static constexpr int kParts = 2;   // of dq, on their way to its sums
  static constexpr int kKeyBytes = kKeys * Dim * 2;
  static constexpr int kQueryBytes = kQueries * Dim * 2;
  static_assert(kKeys == kGroups * 64);
  // Every group sums 64 × 64 of a tile of dq: half of the columns, or half of the queries.
  static_assert(kPanels * kQueryPanels == kGroups);
  static constexpr int kSums = 64 * 64;
};

template <class Tile>
struct Params {
  CUtensorMap q, k, v, d_o;
  AttentionBackwardArgs args;
  Turns<Tile::kKeys, Tile::kQueries> turns;
  int query_tiles;  // of a head
  float* sums;      // of dq: those of a tile one after the other
  int* added;       // how many parts a tile of them has
};

// What the products of a query need of it: two neighbours by one load.
struct alignas(16) PairOfRows {
  float lse[2];  // in powers of two
  float mean[2];
};

// What those that compute know of a column. What they do not keep in registers is here.
struct Job {
  int steps;      // −1: there are no more columns
  int first_key;  // in its sequence, which has so many
  int keys;
  int kv_head;
  std::int64_t batch, k_first;
};

// What a tile of queries sees of a column. Distances are those of a key from the key that a query
// stands at, less the least that a query sees: it sees those from 0 to `span`.
struct StepSight {
  int first;  // the distance of the column's first key from the tile's first query
  unsigned span;
  bool whole[kGroups];  // all queries see all keys of the group
};

// A part of dq: the tile that it is added to, and how many parts come before it.
struct Part {
  std::int64_t tile;  // −1: there are no more
  int before;
};

template <class Stored, class Tile>
struct Shared {
  template <int Rows>
  using Panels = Stored[Tile::kPanels][Rows][kColumns];

  alignas(1024) Panels<Tile::kKeys> k, v;
  alignas(1024) Panels<Tile::kQueries> q[Tile::kStages], d_o[Tile::kStages];
  alignas(1024) Stored d_s[2][Tile::kQueryPanels][Tile::kKeys][kColumns];  // of two steps
  alignas(1024) float d_q[Tile::kParts][kGroups][Tile::kSums];             // to be added
  PairOfRows rows[Tile::kStages][Tile::kQueries / 2];
  StepSight sights[Tile::kStages];  // with the rows
  Job jobs[2];
  Part parts[2];
  Rival rivals[gpu_attention::kHopperBackwardBlocks];
  tma::Ring<1> k_ring, v_ring;
  tma::Ring<Tile::kStages> q_ring, d_o_ring, row_ring;
  tma::Ring<2> job_ring, part_ring;
  // Gradients: a group has shared its own, and has read those of both.
  Mbarrier shared[2][kGroups], read[2][kGroups];
  Mbarrier summed[Tile::kParts], taken[Tile::kParts];  // parts of dq
};

// A turn of a block, by its number among those of all heads.
struct Turn {
  std::int64_t batch;
  int kv_head;         // in the tensors,
  int kv_head_of_all;  // and among all batches
  int place;           // among the turns of its kv head
  Sequence s;
  Sight sight;

  template <class Params>
  __device__ Turn(const Params& p, int number) {
    const AttentionBackwardArgs& a = p.args;
    kv_head_of_all = number / p.turns.of_head;
    place = number % p.turns.of_head;
    const auto heads = static_cast<int>(a.kv_heads);
    batch = kv_head_of_all / heads;
    kv_head = kv_head_of_all % heads;
    s = sequence_of(a, batch);
    sight = sight_of(a, s);
  }

  template <class Params>
  __device__ int head(const Params& p, int own) const {
    return kv_head * p.turns.sharing + own;
  }

  // Where a tile's part of the workspace lies.
  template <class Params>
  __device__ std::int64_t tile(const Params& p, int own_head, int query_tile) const {
    return (std::int64_t{kv_head_of_all} * p.turns.sharing + own_head) * p.query_tiles + query_tile;
  }
};

// Calls body(turn, key_tile, column, steps_before) for every column of the block's, in order.
// `steps_before` are those of the turn's first column, where this is its second.
template <class Tile, class Body>
__device__ inline void each_column(const Params<Tile>& p, Body body) {
  const auto& turns = p.turns;
#pragma unroll 1
  for (auto number = static_cast<int>(blockIdx.x); number < turns.turns; number += turns.blocks) {
    const Turn turn(p, number);
    int steps_before = 0;
#pragma unroll 1
    for (int which = 0; which < turns.count(turn.place); ++which) {
      const Column column = turns.column(turn.sight, turn.place, which);
      const int steps = turns.steps(column);
      body(turn, turns.key_tile(turn.place, which), column, steps_before);
      steps_before += steps;
    }
  }
}

}  // namespace onepass::ops::attention::backward_hopper
