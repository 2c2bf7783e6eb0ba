// The launches that ship for rows on a GPU, as pure functions of problem and machine.
//
// A Config is what there is to choose: a kernel, the packs of 16 bytes that a thread holds in
// registers, and the blocks that share a row. All else of a launch follows from it and the problem.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "rows/packs.hpp"

namespace onepass {
struct Plan;
}

namespace onepass::gpu_rows {

inline constexpr int kGroupThreads = 256;  // a block of groups
inline constexpr int kGroupPacks = 4;      // packs a lane has on its way, of one row or of several
inline constexpr int kBlockThreads = 512;  // the largest block that holds a row
inline constexpr int kSmallBlockThreads = 128;  // one of general rows, of which several fit
inline constexpr int kMostCluster = 16;
inline constexpr int kLoopPacks = 4;  // packs a thread holds of a row that goes on in shared memory
inline constexpr int kFoldPacks = 8;  // and at a time of one that is only folded
inline constexpr int kAnyPacks = 2;   // and of a row with any options
inline constexpr int kBlocksAtOnce = 2;   // blocks per processor where rows follow one another
inline constexpr int kStreamBytes = 128;  // of a row in a thread's registers there
inline constexpr int kStreamTile = 2;     // packs that a thread takes at a time past those

enum class Kernel : std::uint8_t { group, block, grid };

struct Config {
  Kernel kernel = Kernel::group;
  int packs = 0;  // per thread, in registers
  int split = 1;  // blocks per row; the grid's follows from the rows

  bool operator==(const Config&) const = default;
};

// The variants that run configs: a cluster of blocks runs the block's kernel.
enum class Kind : std::uint8_t { group, block, cluster, grid };

constexpr Kind kind_of(const Config& config) {
  switch (config.kernel) {
    case Kernel::group: return Kind::group;
    case Kernel::block: return config.split == 1 ? Kind::block : Kind::cluster;
    case Kernel::grid: break;
  }
  return Kind::grid;
}

constexpr std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::group: return "gpu_group";
    case Kind::block: return "gpu_block";
    case Kind::cluster: return "gpu_cluster";
    case Kind::grid: break;
  }
  return "gpu_grid";
}

// ---- launches ---------------------------------------------------------------------------------

// A few lanes per row, several rows per warp.
struct GroupLaunch {
  static constexpr bool resident = true;  // x is read from memory once

  std::int64_t blocks = 0;
  int threads = 0;
  int row_threads = 1;   // lanes per row, a power of two
  int packs = 0;         // per lane, in registers
  bool general = false;  // options or dtypes that no kernel is compiled for
  bool whole = false;    // kernels for rows of whole packs

  Plan plan() const;
  bool operator==(const GroupLaunch&) const = default;
};

// A block per row, or a cluster of blocks.
struct BlockLaunch {
  static constexpr bool resident = true;

  std::int64_t blocks = 0;
  int threads = 0;
  int cluster = 1;      // blocks per row
  int packs = 0;        // per thread, in registers
  int chunk = 0;        // packs of a row that a block has
  bool looped = false;  // the chunk goes on past the registers,
  int staged = 0;       // with so many packs in shared memory
  std::size_t shared_bytes = 0;
  bool general = false, whole = false;

  Plan plan() const;
  bool operator==(const BlockLaunch&) const = default;
};

// Teams of blocks all over the GPU, at the same time.
struct GridLaunch {
  std::int64_t blocks = 0;
  int threads = kBlockThreads;
  int split = 1;          // blocks per team
  int packs = 0;          // per thread, in registers
  int chunk = 0;          // packs of a row that a block has
  bool looped = false;    // the chunk is longer than what is kept on chip
  bool resident = false;  // and yet it is read once
  int slots = 0;          // packs in shared memory: per thread, of a general row per block
  std::size_t shared_bytes = 0;
  std::size_t scratch_bytes = 0;
  bool general = false;

  Plan plan() const;
  bool operator==(const GridLaunch&) const = default;
};

constexpr std::string_view name_of(const BlockLaunch& launch) {
  return name_of(launch.cluster > 1 ? Kind::cluster : Kind::block);
}

// ---- rows in packs ----------------------------------------------------------------------------

// The usual pairs of dtypes without options have kernels of their own.
constexpr bool is_general(const Problem& p) {
  const bool widens = traffic(p.op).reads == 1 && p.op != Op::cross_entropy_backward;
  const bool usual = p.in != DType::f64 && (traffic(p.op).writes == 0 || p.out == p.in ||
                                            (widens && p.out == DType::f32));
  return !usual || p.mixed_inputs || !p.plain || !p.whole_rows || !p.unit_stride || !p.even_rows;
}

// Most packs that a row has. A dense row has only whole ones; of any other those at its ends may be
// partial, and elements that lie apart are counted as if it began with a pack.
constexpr std::int64_t packs(const Problem& p) {
  if (!is_general(p)) return p.cols / pack_lanes(p.in);
  return most_any_packs(p.cols, p.in, p.aligned_rows);
}

constexpr bool writes_rows(const Problem& p) { return traffic(p.op).writes > 0; }

// Packs a thread holds in the kernels whose rows go on past them.
constexpr int loop_packs(const Problem& p) {
  return is_general(p) ? kAnyPacks : writes_rows(p) ? kLoopPacks : kFoldPacks;
}

// A pack as a block keeps it in shared memory: as it is stored, or the values a general
// row has made of it.
constexpr std::int64_t held_bytes(const Problem& p) {
  const auto values = static_cast<std::int64_t>(any_lanes(p.in) * size_of(compute_type(p.in)));
  return traffic(p.op).reads * (is_general(p) ? values : kPackBytes);
}

// Packs a thread holds where rows follow one another; of any row, the grid's.
constexpr int stream_packs(const Problem& p) {
  return is_general(p) ? kAnyPacks : kStreamBytes / static_cast<int>(held_bytes(p));
}
// What the fold's slots and the driver leave of a block's shared memory, where `blocks` share it.
constexpr std::int64_t stage_packs(const Problem& p, const Machine& m, int blocks = 1) {
  constexpr std::int64_t kept_back = 9 << 10;
  return std::max<std::int64_t>(0, m.gpu.block_shared / blocks - kept_back) / held_bytes(p);
}

constexpr int most_cluster(const Machine& m) { return m.gpu.sm >= 90 ? kMostCluster : 1; }

// ---- from a config to its launch --------------------------------------------------------------

inline GroupLaunch group_launch(const Problem& p, const Machine& m, int held) {
  GroupLaunch launch{.packs = held, .general = is_general(p)};
  launch.row_threads = power_of_two_from(ceil_div(std::max<std::int64_t>(packs(p), 1), held));
  const int rows_per_warp = kWarp / launch.row_threads * (kGroupPacks / held);
  const std::int64_t warps = ceil_div(std::max<std::int64_t>(p.rows, 1), rows_per_warp);
  // Small blocks where large ones would leave processors without any.
  launch.threads = kGroupThreads;
  const auto count = [&] { return ceil_div(warps * kWarp, launch.threads); };
  while (launch.threads > kWarp && count() < m.gpu.processors) launch.threads /= 2;
  launch.blocks = count();
  return launch;
}

// Threads of a general row take so many registers that a processor has room for one large block,
// which waits for its loads with nothing else to do. Where rows fill the GPU, blocks are small, if
// shared memory then holds the rest of a chunk.
constexpr bool wants_small_blocks(const Problem& p, const Machine& m, const BlockLaunch& launch) {
  const std::int64_t resident = std::int64_t{m.gpu.processors} * kBlockThreads;
  const bool fills = launch.blocks * launch.threads > resident || p.batch_invariant;
  const std::int64_t rest = launch.chunk - kSmallBlockThreads * launch.packs;
  return launch.general && fills && (rest <= stage_packs(p, m) || !writes_rows(p));
}

// A chunk of a row that is longer than the registers of its block goes on in shared memory.
inline BlockLaunch block_launch(const Problem& p, const Machine& m, int split, int held) {
  const std::int64_t chunk = ceil_div(std::max<std::int64_t>(packs(p), 1), split);
  BlockLaunch launch{.cluster = split, .packs = held, .general = is_general(p)};
  launch.threads = whole_warps(ceil_div(chunk, held), kBlockThreads);
  launch.chunk = static_cast<int>(chunk);
  launch.blocks = p.rows * split;
  if (wants_small_blocks(p, m, launch)) {
    launch.threads = std::min(launch.threads, kSmallBlockThreads);
  }
  const std::int64_t rest = chunk - std::int64_t{launch.threads} * held;
  launch.looped = launch.general || rest > 0;
  if (rest > 0 && writes_rows(p)) {
    launch.staged = static_cast<int>(rest);
    launch.shared_bytes = static_cast<std::size_t>(rest * held_bytes(p));
  }
  return launch;
}

// Slots of each thread of a block where kBlocksAtOnce share a processor, in whole tiles.
constexpr std::int64_t stream_depth(const Problem& p, const Machine& m) {
  return stage_packs(p, m, kBlocksAtOnce) / kBlockThreads / kStreamTile * kStreamTile;
}

// Blocks a processor of the grid.
constexpr int grid_blocks(const Problem& p) { return is_general(p) ? 1 : kBlocksAtOnce; }

// All processors. As many teams as hold a row in registers, but no more than there are rows.
inline GridLaunch grid_launch(const Problem& p, const Machine& m) {
  const int held = stream_packs(p);
  const int most = m.gpu.processors * grid_blocks(p);
  const std::int64_t n = std::max<std::int64_t>(packs(p), 1);
  const std::int64_t in_registers = std::int64_t{kBlockThreads} * held;
  const std::int64_t teams = std::clamp<std::int64_t>(most / ceil_div(n, in_registers), 1,
                                                      std::clamp<std::int64_t>(p.rows, 1, most));
  const auto split = static_cast<int>(most / teams);
  const std::int64_t chunk = ceil_div(n, split);
  GridLaunch launch{.split = split, .packs = held, .general = is_general(p)};
  launch.chunk = static_cast<int>(chunk);
  launch.blocks = teams * split;
  std::int64_t kept = 0;  // packs in a block's shared memory
  if (launch.general) {
    const std::int64_t stage = stage_packs(p, m, grid_blocks(p));
    launch.looped = true;
    launch.resident = chunk <= in_registers + stage || !writes_rows(p);
    kept = writes_rows(p) ? std::clamp<std::int64_t>(chunk - in_registers, 0, stage) : 0;
    launch.slots = static_cast<int>(kept);
  } else {
    const std::int64_t most_slots = stream_depth(p, m);
    const std::int64_t wanted = round_up(ceil_div(chunk, kBlockThreads), kStreamTile);
    launch.looped = wanted > most_slots;
    launch.resident = wanted <= most_slots + (launch.looped ? held : 0) || !writes_rows(p);
    launch.slots = static_cast<int>(std::min(wanted, most_slots));
    kept = std::int64_t{launch.slots} * kBlockThreads;
  }
  launch.shared_bytes = static_cast<std::size_t>(kept * held_bytes(p));
  // Two sets of partials, of up to four numbers each: cross-entropy's; and a counter per team.
  launch.scratch_bytes =
      static_cast<std::size_t>(2 * launch.blocks) * 4 * size_of(compute_type(p.in)) +
      static_cast<std::size_t>(teams) * sizeof(unsigned);
  return launch;
}

// Behind what the kernel itself needs of the workspace: each row's loss where losses are reduced,
// and for the gradient the factor of the mean.
constexpr std::size_t loss_scratch_bytes(const Problem& p) {
  if (!p.reduced) return 0;
  const bool loss = p.op == Op::cross_entropy || p.gives_loss;
  const bool gradient = p.op == Op::cross_entropy_backward;
  return sizeof(double) * ((loss ? static_cast<std::size_t>(p.rows) : 0) + (gradient ? 1 : 0));
}

// Whether the kernels for rows of whole packs that are written as they are stored
// (ops/softmax/gpu/whole.cuh) take a launch. What these keep are floats, of 16 bits twice the
// registers: clusters that come in rounds want more blocks at a time than they leave room for. Nor
// where a row's bits shall not depend on how the others lie.
template <class Launch>
constexpr bool takes_whole(const Launch& launch, const Problem& p) {
  return !launch.general && p.packed_rows && p.out == p.in && !p.batch_invariant;
}
inline bool takes_whole(const BlockLaunch& launch, const Problem& p, const Machine& m) {
  const std::int64_t at_once = std::int64_t{m.gpu.processors} * m.gpu.processor_threads / 2;
  const bool in_rounds = launch.cluster > 1 && launch.blocks * launch.threads > at_once;
  return !launch.looped && takes_whole(launch, p) && !(in_rounds && size_of(p.in) == 2);
}

}  // namespace onepass::gpu_rows
