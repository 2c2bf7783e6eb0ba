// The launch of the Hopper kernel, as a pure function of problem and machine, and where it
// is not worth it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ops/attention/gpu/flash/plan.hpp"

namespace onepass::gpu_attention {

// The tile of the Hopper kernel: warpgroups of 64 rows, and keys.
struct HopperTile {
  int groups, keys;

  constexpr int rows() const { return 64 * groups; }
  constexpr int threads() const { return 128 * (groups + 1); }
  bool operator==(const HopperTile&) const = default;
};

// Measured on an H200 (docs/facts/attention.md). A third warpgroup helps where exponentials
// are the limit; fewer keys per tile help where the last tile would be mostly past the end, or
// past a diagonal.
constexpr HopperTile hopper_tile(int dim, std::int64_t keys, bool cut, bool ragged) {
  if (dim == 64) return {ragged ? 2 : 3, 128};
  if (dim <= 128) return {2, 128};
  if (dim == 192) return {2, 96};
  return {2, keys < (cut ? 2048 : 1024) ? 64 : 80};
}

constexpr HopperTile hopper_tile(const AttentionFacts& a) {
  return hopper_tile(a.dim, a.keys, a.causal || a.window_left >= 0 || a.window_right >= 0,
                     a.lengths || a.q_offsets || a.kv_offsets);
}

constexpr std::int64_t hopper_tiles(const AttentionFacts& a, int rows) {
  const std::int64_t tiles = ceil_div(a.queries, rows);
  return a.heads * (a.q_offsets ? tiles + a.batch : tiles * a.batch);
}

constexpr std::int64_t hopper_tiles(const AttentionFacts& a) {
  return hopper_tiles(a, hopper_tile(a).rows());
}

// Rounds of pairs that are left to go tile by tile (Schedule::in_pairs): the more
// tiles, the more their lengths differ. At dim 256 keys of more would have no room in L2, and short
// heads gain nothing.
constexpr int hopper_rounds_left(int dim, int query_tiles) {
  if (dim > 192) return query_tiles < 8 ? -1 : 0;
  return std::min(query_tiles / 16, 2);
}

// Under a diagonal the tile with fewer queries is the first, which has few keys: it begins so many
// rows before the first query, those of whole warpgroups. A head of few tiles gains nothing.
constexpr int hopper_lead(HopperTile tile, int query_tiles, int queries) {
  return query_tiles < 4 ? 0 : (query_tiles * tile.rows() - queries) / 64 * 64;
}

// Blocks stay, one per SM, and take tile after tile.
struct HopperLaunch {
  std::int64_t blocks = 0;
  HopperTile tile{};
  bool paired = false;  // tiles under a diagonal are dealt in pairs,
  int rounds_left = 0;  // but for so many rounds
  int lead = 0;         // rows of the first tile before the first query

  Plan plan() const;
  bool operator==(const HopperLaunch&) const = default;
};

// A tile of two warpgroups takes an eighth less time than one of three, so they are better where
// they take as many rounds.
inline HopperLaunch hopper(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  HopperTile tile = hopper_tile(a);
  const HopperTile smaller{2, tile.keys};
  const auto rounds = [&](HopperTile t) {
    return ceil_div(hopper_tiles(a, t.rows()), m.gpu.processors);
  };
  if (!p.batch_invariant && rounds(smaller) == rounds(tile)) tile = smaller;
  HopperLaunch launch{
      .blocks = std::min<std::int64_t>(m.gpu.processors, hopper_tiles(a, tile.rows())),
      .tile = tile};
  launch.paired = (a.causal || a.window_right >= 0) && !a.q_offsets;
  if (launch.paired) {
    const auto tiles = static_cast<int>(ceil_div(a.queries, tile.rows()));
    launch.rounds_left = hopper_rounds_left(a.dim, tiles);
    launch.lead = hopper_lead(tile, tiles, static_cast<int>(a.queries));
  }
  return launch;
}

// Where Hopper's tiles are few, blocks of gpu_flash that share a tile's keys keep more of the GPU
// busy. How many of them per 128 rows beat Hopper's one is measured on an H200
// (docs/facts/attention.md).
inline bool hopper_fills(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  const int blocks = a.keys >= 8192 ? 4 : a.dim == 64 ? 5 : a.keys >= 2048 ? 8 : 16;
  return blocks * hopper_tiles(a, 128) > m.gpu.processors;
}

// A tile of its has the queries of one head, one of the kernel of warps those of all heads
// that share their keys. It is twice as quick, so where queries are few, twice as many
// tiles are too many.
constexpr bool hopper_wastes(const Problem& p) {
  const AttentionFacts& a = p.attention;
  if (p.batch_invariant && a.q_offsets) return false;  // that would look at the other sequences
  return hopper_tiles(a) > 2 * row_tiles(a, flash_rows(flash_dims(a.dim)));
}

inline std::string refuse_hopper(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  if (m.device() != Device::cuda || m.gpu.sm != 90) return "it needs sm_90";
  if ((p.in != DType::f16 && p.in != DType::bf16) || p.out != p.in) {
    return "it takes f16 and bf16, and gives the same";
  }
  if (flash_dims(a.dim).dim != a.dim || a.dim > 256) {
    return "its dims are 64, 96, 128, 192 and 256";
  }
  if (!a.one_dim()) return "its values have the dim of its keys";
  if (!a.aligned) return "its tokens must begin at multiples of 16 bytes";
  if (!a.strided) return "its strides must be positive";
  if (a.page > 0) return "its keys are not in pages";
  if (a.dim > 192 && (a.lengths || a.q_offsets || a.kv_offsets)) {
    return "sequences of their own lengths have dims up to 192";
  }
  if (a.additive || a.boolean || a.alibi) return "it takes no mask tensor and no alibi";
  if (a.split > 0) return "it does not cut keys";
  if (a.keys == 0) return "it needs at least one key";
  if (a.queries > kMost32 || a.keys > kMost32 || hopper_tiles(a) > kMost32) {
    return "its rows and keys are counted with 31 bits";
  }
  return {};
}

}  // namespace onepass::gpu_attention
