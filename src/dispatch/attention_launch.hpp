// The launches of attention on a GPU, as pure functions of problem and machine.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "core/problem.hpp"
#include "dispatch/gpu_rows.hpp"
#include "dispatch/machine.hpp"
#include "onepass/plan.hpp"
#include "ops/row/packs.hpp"

namespace onepass::attention_launch {

inline constexpr std::int64_t kMost32 = std::numeric_limits<int>::max() / 2;

// The kernels of warps: tiles of so many keys against rows, which are the queries of a kv head with all the heads that
// share it.
inline constexpr int kFlashKeys = 64;
inline constexpr std::int64_t kFewRows = 16;  // that one warp has

// What a kernel is compiled for: the dim of q and k, and the columns of v that a block sums.
struct FlashDims {
  int dim, columns;
};

constexpr FlashDims flash_dims(int dim) {
  for (const int compiled : std::array{64, 96, 128, 192, 256}) {
    if (dim <= compiled) return {compiled, compiled};
  }
  return {512, 256};
}

constexpr int swizzled_bytes(int columns) { return (columns + 63) / 64 * 128; }

// Shared memory of warps that share so many rows and tiles of keys.
constexpr int flash_bytes(FlashDims dims, int rows, int keys = kFlashKeys) {
  return (rows + keys) * swizzled_bytes(dims.dim) + keys * swizzled_bytes(dims.columns);
}

// Where a row's sums leave registers for the scores of twice as many keys, tiles have so many if there are enough of them, nobody
// shares them and there is memory. Keys of all sequences side by side (`packed`) say nothing about any one of them.
constexpr bool can_double(FlashDims dims) { return dims.dim == 64 || dims.dim == 192; }
constexpr bool flash_doubles(FlashDims dims, int rows, std::int64_t keys, bool packed,
                             const Plan& plan, const Machine& m) {
  return can_double(dims) && rows > kFewRows && (packed || keys >= 8 * kFlashKeys) &&
         plan.split == 1 && plan.cluster == 1 &&
         flash_bytes(dims, rows, 2 * kFlashKeys) <= m.gpu.block_shared;
}
// Whether a plan has them.
constexpr bool has_doubled(FlashDims dims, int rows, const Plan& plan) {
  return can_double(dims) && plan.split == 1 && plan.cluster == 1 &&
         plan.shared_bytes == static_cast<std::size_t>(flash_bytes(dims, rows, 2 * kFlashKeys));
}

// And of what they leave there of their rows for each other: rows a little apart, so that their banks differ.
inline constexpr int kFoundPadding = 8;

constexpr int found_bytes(FlashDims dims, int rows) {
  return rows * (dims.columns + kFoundPadding + 2) * static_cast<int>(sizeof(float));
}

// Rows and threads of a block of 10_mma.
constexpr int flash_rows(FlashDims dims) { return dims.dim <= 192 ? 128 : 64; }
constexpr int flash_threads(FlashDims dims) { return dims.dim == 192 ? 256 : 128; }

// Tiles of rows of all sequences. Where they have lengths of their own, at most.
constexpr std::int64_t row_tiles(const AttentionFacts& a, int rows) {
  const std::int64_t tiles = ceil_div(a.queries * a.group(), rows);
  return a.kv_heads * (a.q_offsets ? tiles + a.batch : tiles * a.batch);
}

constexpr std::int64_t batch_rows(const AttentionFacts& a) {
  return a.heads * a.queries * (a.q_offsets ? 1 : a.batch);
}

// Blocks that run at a time in clusters of so many: GPCs do not all have the same number of SMs. On an H200, as
// cudaOccupancyMaxActiveClusters says.
constexpr std::int64_t clustered_blocks(std::int64_t blocks, int cluster) {
  return blocks * (110 - (cluster > 1 ? cluster : 0)) / 110 / cluster * cluster;
}

// Who shares the keys of a row: parts that are joined by a launch of their own, of each the blocks of a cluster.
struct Sharing {
  std::int64_t parts = 1;
  int cluster = 1;
};

// So that all SMs have something to do. A block has its tiles of keys, and something to begin with; what blocks found
// has to be joined: blocks of a cluster join a share of the rows each, and parts leave all `rows` in memory. `busy`
// blocks keep the GPU busy, `fit` run at a time, and each cuts its keys once more for `teams`.
constexpr Sharing sharing_for(std::int64_t blocks, std::int64_t rows, std::int64_t busy,
                              std::int64_t fit, std::int64_t tiles, int teams, int most_cluster) {
  constexpr std::int64_t kMostParts = 128;
  constexpr std::int64_t kBegin = 2, kJoin = 4;  // in tiles of keys
  constexpr std::int64_t kJoinedRows = 1024;     // in the time of one
  // Few blocks of a cluster have many rows each to join, many wait for each other.
  const auto join_in_cluster = [](int size) { return size > 1 ? 8 / size + size * size / 64 : 0; };
  Sharing best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int cluster = 1; cluster <= most_cluster; cluster *= 2) {
    const std::int64_t at_a_time = std::min(busy, clustered_blocks(fit, cluster));
    if (at_a_time == 0) break;
    for (std::int64_t parts = 1; parts <= kMostParts && parts * cluster <= tiles; ++parts) {
      const std::int64_t own = ceil_div(tiles, parts * cluster * teams) * teams;
      const std::int64_t cost = ceil_div(blocks * cluster * parts, at_a_time) * (own + kBegin) +
                                join_in_cluster(cluster) +
                                (parts > 1 ? kJoin + rows / kJoinedRows : 0);
      if (cost < least) {
        least = cost;
        best = {parts, cluster};
      }
    }
  }
  return best;
}

// What a part leaves of each row: one thing of its block's, or one of each team's, which then need not meet, where a
// row's are few enough.
constexpr int left_by_part(int parts, int teams) {
  constexpr int kMostOfRow = 128;
  return parts > 1 && parts * teams <= kMostOfRow ? teams : 1;
}

constexpr std::size_t left_bytes(std::int64_t things, std::int64_t rows, int dim) {
  return static_cast<std::size_t>(things * rows * (dim + 1)) * sizeof(float);
}

// Keys of a part where a query's bits shall not depend on the batch.
inline constexpr std::int64_t kInvariantKeys = 1024;

// Blocks of so many teams of warps, each with keys of its own.
inline Plan flash_plan(const Problem& p, const Machine& m, int rows, int threads, int teams,
                       int most_blocks) {
  const AttentionFacts& a = p.attention;
  const FlashDims dims = flash_dims(a.dim);
  Plan plan{.threads = threads * teams, .general = !a.aligned};
  const int own = flash_bytes(dims, rows);
  plan.shared_bytes = static_cast<std::size_t>(own * teams);
  const int columns = dims.dim / dims.columns;
  const std::int64_t blocks = row_tiles(a, rows) * columns;
  const std::int64_t an_sm = std::clamp<std::int64_t>(
      m.gpu.block_shared / static_cast<std::int64_t>(plan.shared_bytes + 1024), 1, most_blocks);
  const std::int64_t fit = an_sm * m.gpu.processors;
  const std::int64_t tiles = std::max<std::int64_t>(ceil_div(a.keys, kFlashKeys), 1);
  std::int64_t part = tiles;  // in tiles
  if (a.split > 0) {
    part = ceil_div(std::min(a.split, std::max<std::int64_t>(a.keys, 1)), kFlashKeys);
  } else if (p.batch_invariant) {
    part = rows == kFewRows ? kInvariantKeys / kFlashKeys : tiles;
  } else {
    // Few rows: the memory is the limit. One block an SM is enough for it, but all SMs are wanted, and clusters leave
    // some out.
    const bool few = rows == kFewRows;
    const Sharing sharing = sharing_for(blocks, batch_rows(a), few ? m.gpu.processors : fit, fit,
                                        tiles, teams, few ? 1 : gpu_rows::most_cluster(m));
    part = ceil_div(tiles, sharing.parts);
    plan.cluster = sharing.cluster;
  }
  if (plan.cluster > 1) {
    plan.shared_bytes =
        std::max(plan.shared_bytes, static_cast<std::size_t>(found_bytes(dims, rows)));
  }
  plan.split = static_cast<int>(ceil_div(tiles, part));
  if (flash_doubles(dims, rows, a.keys, a.kv_offsets, plan, m)) {
    plan.shared_bytes = static_cast<std::size_t>(flash_bytes(dims, rows, 2 * kFlashKeys));
  }
  plan.keys = plan.split > 1 ? part * kFlashKeys : 0;
  plan.blocks = blocks * plan.split * plan.cluster;
  if (plan.split > 1) {
    const bool fixed = p.batch_invariant || a.split > 0;
    const int left = plan.split * (fixed ? 1 : left_by_part(plan.split, teams));
    plan.scratch_bytes = left_bytes(left, batch_rows(a), a.dim);
  }
  return plan;
}

inline Plan mma(const Problem& p, const Machine& m) {
  const FlashDims dims = flash_dims(p.attention.dim);
  const int threads = flash_threads(dims);
  return flash_plan(p, m, flash_rows(dims), threads, 1, threads == 256 ? 1 : 2);
}

inline constexpr int kSchedulers = 4;  // of an SM
inline constexpr int kMostTeams = 6;

// A warp for each scheduler. Keys in pages have to be looked up before they can be asked for: more warps are wanted then,
// two blocks of as many as fit, where there are blocks enough.
inline Plan decode(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  const int own = flash_bytes(flash_dims(a.dim), kFewRows);
  const bool looks_up =
      a.page > 0 && (p.batch_invariant || row_tiles(a, kFewRows) > m.gpu.processors);
  const int teams = looks_up ? std::clamp((m.gpu.block_shared / 2 - 1024) / own, 1, kMostTeams)
                             : std::clamp((m.gpu.block_shared - 1024) / own, 1, kSchedulers);
  return flash_plan(p, m, kFewRows, 32, teams, 12);
}

inline Plan simt(const Problem& p, const Machine&) {
  const AttentionFacts& a = p.attention;
  return {.threads = 256,
          .blocks = ceil_div(a.queries * a.group(), 8) * a.kv_heads * a.batch,
          .shared_bytes = static_cast<std::size_t>(72 * (a.dim + 1) * 4)};
}

// What a launch cannot have.
inline std::string refuse_size(const AttentionFacts& a, const Plan& plan, const Machine& m) {
  if (a.queries * a.group() > kMost32 || a.keys > kMost32) {
    return "its rows and keys are counted with 31 bits";
  }
  if (plan.blocks > kMost32) return "it would be " + std::to_string(plan.blocks) + " blocks";
  if (plan.shared_bytes > static_cast<std::size_t>(m.gpu.block_shared)) {
    return "it wants " + std::to_string(plan.shared_bytes) + " bytes of shared memory a block";
  }
  return {};
}

inline std::string refuse_simt(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  return refuse_size(p.attention, simt(p, m), m);
}

inline std::string refuse_tensor_cores(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (m.gpu.sm < 80) return "it needs sm_80";
  if (p.in != DType::f16 && p.in != DType::bf16) return "it takes f16 and bf16";
  return {};
}

inline std::string refuse_mma(const Problem& p, const Machine& m) {
  if (std::string no = refuse_tensor_cores(p, m); !no.empty()) return no;
  return refuse_size(p.attention, mma(p, m), m);
}

inline std::string refuse_decode(const Problem& p, const Machine& m) {
  if (std::string no = refuse_tensor_cores(p, m); !no.empty()) return no;
  if (p.attention.queries * p.attention.group() > kFewRows || p.attention.q_offsets) {
    return "it takes up to 16 rows a kv head, all sequences alike";
  }
  return refuse_size(p.attention, decode(p, m), m);
}

// The tile of the Hopper kernel: warpgroups of 64 rows, and keys.
struct HopperTile {
  int groups, keys;

  constexpr int rows() const { return 64 * groups; }
  constexpr int threads() const { return 128 * (groups + 1); }
  bool operator==(const HopperTile&) const = default;
};

// Measured on an H200 (docs/facts.md). A third warpgroup helps where exponentials are the limit; fewer keys a tile where
// the last would be mostly past the end, or past a diagonal.
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

// Rounds of pairs that are left to go tile by tile (attention_tiles::Schedule::in_pairs): the more tiles, the more their
// lengths differ. At dim 256 keys of more would have no room in L2, and short heads gain nothing.
constexpr int hopper_rounds_left(int dim, int query_tiles) {
  if (dim > 192) return query_tiles < 8 ? -1 : 0;
  return std::min(query_tiles / 16, 2);
}

// Under a diagonal the tile with fewer queries is the first, which has few keys: it begins so many rows before the first
// query, those of whole warpgroups. A head of few tiles gains nothing.
constexpr int hopper_lead(HopperTile tile, int query_tiles, int queries) {
  return query_tiles < 4 ? 0 : (query_tiles * tile.rows() - queries) / 64 * 64;
}

// Its blocks stay, one an SM. A tile of two warpgroups takes an eighth less time than one of three, so they are better
// where they take as many rounds.
inline Plan hopper(const Problem& p, const Machine& m) {
  HopperTile tile = hopper_tile(p.attention);
  const HopperTile smaller{2, tile.keys};
  const auto rounds = [&](HopperTile t) {
    return ceil_div(hopper_tiles(p.attention, t.rows()), m.gpu.processors);
  };
  if (!p.batch_invariant && rounds(smaller) == rounds(tile)) tile = smaller;
  return {
      .threads = tile.threads(),
      .blocks = std::min<std::int64_t>(m.gpu.processors, hopper_tiles(p.attention, tile.rows()))};
}

// Where its tiles are few, blocks of the kernel of warps that share a tile's keys keep more of the GPU busy. So many of
// them for 128 rows are quicker than its one, measured on an H200 (docs/facts.md).
inline bool hopper_fills(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  const int blocks = a.keys >= 8192 ? 4 : a.dim == 64 ? 5 : a.keys >= 2048 ? 8 : 16;
  return blocks * hopper_tiles(a, 128) > m.gpu.processors;
}

// A tile of its has the queries of one head, one of the kernel of warps those of all heads that share their keys. It is
// twice as quick, so where queries are few, twice as many tiles are too many.
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
  if (!a.aligned) return "its tokens must begin at multiples of 16 bytes";
  if (!a.strided) return "its strides must be positive";
  if (a.page > 0) return "its keys are not in pages";
  if (a.dim > 192 && (a.lengths || a.q_offsets || a.kv_offsets)) {
    return "sequences of their own lengths have dims up to 192";
  }
  if (a.additive || a.boolean || a.alibi) return "it takes no mask tensor and no alibi";
  if (a.split > 0) return "it does not cut keys";
  if (a.keys == 0) return "it wants keys";
  if (a.queries > kMost32 || a.keys > kMost32 || hopper_tiles(a) > kMost32) {
    return "its rows and keys are counted with 31 bits";
  }
  return {};
}

}  // namespace onepass::attention_launch
