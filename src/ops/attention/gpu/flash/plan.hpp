// The launches of flash attention by the tensor cores of one warp at a time, as pure functions of
// problem and machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "ops/attention/gpu/plan.hpp"
#include "rows/gpu/plan.hpp"

namespace onepass::gpu_attention {

// The kernels of warps: tiles of so many keys against rows, which are the queries of a kv head with
// all the heads that share it.
inline constexpr int kFlashKeys = 64;

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

// Tiles of rows against tiles of keys, by warps.
struct FlashLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  int cluster = 1;       // blocks that share the keys of a part
  int parts = 1;         // that keys are cut into, and joined by a second launch
  int part_keys = 0;     // keys per part; 0: keys are not cut
  int left_by_part = 1;  // partial results per row that a part leaves
  int tile_keys = 0;     // keys per tile
  std::size_t shared_bytes = 0, scratch_bytes = 0;
  bool aligned = false;  // every token begins at a multiple of 16 bytes

  Plan plan() const;
  bool operator==(const FlashLaunch&) const = default;
};

// Where a row's sums leave registers for the scores of twice as many keys, tiles have so many if
// there are enough of them, no block shares them and there is memory. Keys of all sequences side by
// side (`packed`) say nothing about any one of them.
constexpr bool can_double(FlashDims dims) { return dims.dim == 64 || dims.dim == 192; }
constexpr bool flash_doubles(FlashDims dims, int rows, std::int64_t keys, bool packed,
                             const FlashLaunch& launch, const Machine& m) {
  return can_double(dims) && rows > kFewRows && (packed || keys >= 8 * kFlashKeys) &&
         launch.parts == 1 && launch.cluster == 1 &&
         flash_bytes(dims, rows, 2 * kFlashKeys) <= m.gpu.block_shared;
}

// And of what they leave there of their rows for each other: rows a little apart, so that
// their banks differ.
inline constexpr int kFoundPadding = 8;

constexpr int found_bytes(FlashDims dims, int rows) {
  return rows * (dims.columns + kFoundPadding + 2) * static_cast<int>(sizeof(float));
}

// Rows and threads of a block of gpu_flash.
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

// Blocks that run at a time in clusters of so many: GPCs do not all have the same number of SMs. On
// an H200, as cudaOccupancyMaxActiveClusters says.
constexpr std::int64_t clustered_blocks(std::int64_t blocks, int cluster) {
  return blocks * (110 - (cluster > 1 ? cluster : 0)) / 110 / cluster * cluster;
}

// Who shares the keys of a row: parts that are joined by a launch of their own, of each the
// blocks of a cluster.
struct Sharing {
  std::int64_t parts = 1;
  int cluster = 1;
};

// So that all SMs have something to do. A block has its tiles of keys, and something to begin with;
// what blocks found has to be joined: blocks of a cluster join a share of the rows each, and parts
// leave all `rows` in memory. `busy` blocks keep the GPU busy, `fit` run at a time, and each cuts
// its keys once more for `teams`.
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

// What a part leaves of each row: one thing of its block's, or one of each team's, which then need
// not meet, where a row's are few enough.
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
inline FlashLaunch flash_launch(const Problem& p, const Machine& m, int rows, int threads,
                                int teams, int most_blocks) {
  const AttentionFacts& a = p.attention;
  const FlashDims dims = flash_dims(a.dim);
  FlashLaunch launch{.threads = threads * teams, .tile_keys = kFlashKeys, .aligned = a.aligned};
  const int own = flash_bytes(dims, rows);
  launch.shared_bytes = static_cast<std::size_t>(own * teams);
  const int columns = dims.dim / dims.columns;
  const std::int64_t blocks = row_tiles(a, rows) * columns;
  const std::int64_t per_sm = std::clamp<std::int64_t>(
      m.gpu.block_shared / static_cast<std::int64_t>(launch.shared_bytes + 1024), 1, most_blocks);
  const std::int64_t fit = per_sm * m.gpu.processors;
  const std::int64_t tiles = std::max<std::int64_t>(ceil_div(a.keys, kFlashKeys), 1);
  std::int64_t part = tiles;  // in tiles
  if (a.split > 0) {
    part = ceil_div(std::min(a.split, std::max<std::int64_t>(a.keys, 1)), kFlashKeys);
  } else if (p.batch_invariant) {
    part = rows == kFewRows ? kInvariantKeys / kFlashKeys : tiles;
  } else {
    // Few rows: the memory is the limit. One block per SM is enough for it, but all SMs are wanted,
    // and clusters leave some out.
    const bool few = rows == kFewRows;
    const Sharing sharing = sharing_for(blocks, batch_rows(a), few ? m.gpu.processors : fit, fit,
                                        tiles, teams, few ? 1 : gpu_rows::most_cluster(m));
    part = ceil_div(tiles, sharing.parts);
    launch.cluster = sharing.cluster;
  }
  if (launch.cluster > 1) {
    launch.shared_bytes =
        std::max(launch.shared_bytes, static_cast<std::size_t>(found_bytes(dims, rows)));
  }
  launch.parts = static_cast<int>(ceil_div(tiles, part));
  if (flash_doubles(dims, rows, a.keys, a.kv_offsets, launch, m)) {
    launch.tile_keys = 2 * kFlashKeys;
    launch.shared_bytes = static_cast<std::size_t>(flash_bytes(dims, rows, launch.tile_keys));
  }
  launch.part_keys = launch.parts > 1 ? static_cast<int>(part * kFlashKeys) : 0;
  launch.blocks = blocks * launch.parts * launch.cluster;
  if (launch.parts > 1) {
    const bool fixed = p.batch_invariant || a.split > 0;
    launch.left_by_part = fixed ? 1 : left_by_part(launch.parts, teams);
    launch.scratch_bytes = left_bytes(launch.parts * launch.left_by_part, batch_rows(a), a.dim);
  }
  return launch;
}

inline FlashLaunch mma(const Problem& p, const Machine& m) {
  const FlashDims dims = flash_dims(p.attention.dim);
  const int threads = flash_threads(dims);
  return flash_launch(p, m, flash_rows(dims), threads, 1, threads == 256 ? 1 : 2);
}

inline constexpr int kSchedulers = 4;  // of an SM
inline constexpr int kMostTeams = 6;

// A warp for each scheduler. Keys in pages have to be looked up before they can be asked for: more
// warps are wanted then, two blocks of as many as fit, where there are blocks enough.
inline FlashLaunch decode(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  const int own = flash_bytes(flash_dims(a.dim), kFewRows);
  const bool looks_up =
      a.page > 0 && (p.batch_invariant || row_tiles(a, kFewRows) > m.gpu.processors);
  const int teams = looks_up ? std::clamp((m.gpu.block_shared / 2 - 1024) / own, 1, kMostTeams)
                             : std::clamp((m.gpu.block_shared - 1024) / own, 1, kSchedulers);
  return flash_launch(p, m, kFewRows, 32, teams, 12);
}

inline std::string refuse_mma(const Problem& p, const Machine& m) {
  if (std::string no = refuse_tensor_cores(p, m); !no.empty()) return no;
  return refuse_size(p.attention, mma(p, m), m);
}

inline std::string refuse_decode(const Problem& p, const Machine& m) {
  if (std::string no = refuse_tensor_cores(p, m); !no.empty()) return no;
  if (p.attention.queries * p.attention.group() > kFewRows || p.attention.q_offsets) {
    return "it takes up to 16 rows per kv head, all sequences alike";
  }
  return refuse_size(p.attention, decode(p, m), m);
}

}  // namespace onepass::gpu_attention
