// The launches that ship for rows on a GPU, as pure functions of problem and machine.
//
// A Launch is what there is to choose: a kernel, the packs of 16 bytes that a thread holds in
// registers, and the blocks that share a row. All else of a Plan follows from it and the problem.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "core/machine.hpp"
#include "onepass/plan.hpp"
#include "rows/packs.hpp"

namespace onepass::gpu_rows {

inline constexpr int kGroupThreads = 256;  // a block of groups
inline constexpr int kGroupPacks = 4;      // packs a lane has on its way, of one row or of several
inline constexpr int kBlockThreads = 512;  // the largest block that holds a row
inline constexpr int kMostCluster = 16;
inline constexpr int kLoopPacks = 4;  // packs a thread holds of a row that goes on in shared memory
inline constexpr int kFoldPacks = 8;  // and at a time of one that is only folded
inline constexpr int kAnyPacks = 2;   // and of a row with any options
inline constexpr int kBlocksAtOnce = 2;   // blocks a processor where rows follow one another
inline constexpr int kStreamBytes = 128;  // of a row in a thread's registers there
inline constexpr int kStreamTile = 2;     // packs that a thread takes at a time past those

enum class Kernel : std::uint8_t { group, block, grid };

struct Launch {
  Kernel kernel = Kernel::group;
  int packs = 0;  // a thread, in registers
  int split = 1;  // blocks a row; the grid's follows from the rows

  bool operator==(const Launch&) const = default;
};

constexpr std::string_view variant_of(const Launch& launch) {
  switch (launch.kernel) {
    case Kernel::group: return "gpu_group";
    case Kernel::block: return launch.split == 1 ? "gpu_block" : "gpu_cluster";
    case Kernel::grid: return "gpu_grid";
  }
  return "?";
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
  return most_packs(p.cols, p.in, p.aligned_rows);
}

constexpr bool writes_rows(const Problem& p) { return traffic(p.op).writes > 0; }

// Packs a thread holds in the kernels whose rows go on past them.
constexpr int loop_packs(const Problem& p) {
  return is_general(p) ? kAnyPacks : writes_rows(p) ? kLoopPacks : kFoldPacks;
}

// A pack as a block keeps it in shared memory: as it is stored, or the values a general row has made
// of it.
constexpr std::int64_t held_bytes(const Problem& p) {
  const auto values = static_cast<std::int64_t>(pack_lanes(p.in) * size_of(compute_type(p.in)));
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

// ---- from a launch to its plan ----------------------------------------------------------------

inline Plan group(const Problem& p, const Machine& m, int held) {
  Plan plan{.resident = true, .packs = held, .general = is_general(p)};
  plan.row_threads = power_of_two_from(ceil_div(std::max<std::int64_t>(packs(p), 1), held));
  const int rows_a_warp = kWarp / plan.row_threads * (kGroupPacks / held);
  const std::int64_t warps = ceil_div(std::max<std::int64_t>(p.rows, 1), rows_a_warp);
  // Small blocks where large ones would leave processors without any.
  plan.threads = kGroupThreads;
  const auto count = [&] { return ceil_div(warps * kWarp, plan.threads); };
  while (plan.threads > kWarp && count() < m.gpu.processors) plan.threads /= 2;
  plan.blocks = count();
  return plan;
}

// A chunk of a row that is longer than the registers of its block goes on in shared memory.
inline Plan block(const Problem& p, int split, int held) {
  const std::int64_t chunk = ceil_div(std::max<std::int64_t>(packs(p), 1), split);
  Plan plan{.split = split, .resident = true, .packs = held, .general = is_general(p)};
  plan.threads = whole_warps(ceil_div(chunk, held), kBlockThreads);
  plan.chunk = static_cast<int>(chunk);
  plan.blocks = p.rows * split;
  const std::int64_t rest = chunk - std::int64_t{plan.threads} * held;
  plan.looped = plan.general || rest > 0;
  if (rest > 0 && writes_rows(p))
    plan.shared_bytes = static_cast<std::size_t>(rest * held_bytes(p));
  return plan;
}

// Slots of each thread of a block where kBlocksAtOnce share a processor, in whole tiles.
constexpr std::int64_t stream_depth(const Problem& p, const Machine& m) {
  return stage_packs(p, m, kBlocksAtOnce) / kBlockThreads / kStreamTile * kStreamTile;
}

constexpr std::size_t slot_bytes(const Problem& p, std::int64_t depth) {
  return static_cast<std::size_t>(depth * kBlockThreads * held_bytes(p));
}

// Blocks a processor of the grid.
constexpr int grid_blocks(const Problem& p) { return is_general(p) ? 1 : kBlocksAtOnce; }

// All processors. As many teams as hold a row in registers, but no more than
// there are rows.
inline Plan grid(const Problem& p, const Machine& m) {
  const int held = stream_packs(p);
  const int most = m.gpu.processors * grid_blocks(p);
  const std::int64_t n = std::max<std::int64_t>(packs(p), 1);
  const std::int64_t in_registers = std::int64_t{kBlockThreads} * held;
  const std::int64_t teams = std::clamp<std::int64_t>(most / ceil_div(n, in_registers), 1,
                                                      std::clamp<std::int64_t>(p.rows, 1, most));
  const auto split = static_cast<int>(most / teams);
  const std::int64_t chunk = ceil_div(n, split);
  Plan plan{.threads = kBlockThreads, .split = split, .packs = held, .general = is_general(p)};
  plan.chunk = static_cast<int>(chunk);
  plan.blocks = teams * split;
  if (plan.general) {
    const std::int64_t stage = stage_packs(p, m, grid_blocks(p));
    const std::int64_t rest = std::clamp<std::int64_t>(chunk - in_registers, 0, stage);
    plan.looped = true;
    plan.resident = chunk <= in_registers + stage || !writes_rows(p);
    plan.shared_bytes = writes_rows(p) ? static_cast<std::size_t>(rest * held_bytes(p)) : 0;
  } else {
    const std::int64_t most_slots = stream_depth(p, m);
    const std::int64_t wanted = round_up(ceil_div(chunk, kBlockThreads), kStreamTile);
    plan.looped = wanted > most_slots;
    plan.resident = wanted <= most_slots + (plan.looped ? held : 0) || !writes_rows(p);
    plan.shared_bytes = slot_bytes(p, std::min(wanted, most_slots));
  }
  // Two sets of partials, of up to four numbers each: cross-entropy's; and a counter a team.
  plan.scratch_bytes = static_cast<std::size_t>(2 * plan.blocks) * 4 * size_of(compute_type(p.in)) +
                       static_cast<std::size_t>(teams) * sizeof(unsigned);
  return plan;
}

// Behind what the kernel itself needs of the workspace: of a reduced loss each row's, of its gradient the
// factor of the mean.
constexpr std::size_t loss_scratch_bytes(const Problem& p) {
  if (!p.reduced) return 0;
  const bool loss = p.op == Op::cross_entropy || p.gives_loss;
  const bool gradient = p.op == Op::cross_entropy_backward;
  return sizeof(double) * ((loss ? static_cast<std::size_t>(p.rows) : 0) + (gradient ? 1 : 0));
}

// Whether a plan takes the kernels for rows of whole packs that are written as they are stored (ops/softmax/gpu/whole.cuh).
// What these keep are floats, of 16 bits twice the registers: clusters that come in rounds want more blocks at a time than
// they leave room for. Nor where a row's bits shall not depend on how the others lie.
constexpr bool takes_whole(const Launch& launch, const Plan& plan, const Problem& p,
                           const Machine& m) {
  if (launch.kernel == Kernel::grid || plan.general || plan.looped) return false;
  const std::int64_t at_once = std::int64_t{m.gpu.processors} * m.gpu.processor_threads / 2;
  const bool in_rounds = plan.split > 1 && plan.blocks * plan.threads > at_once;
  return p.packed_rows && p.out == p.in && !p.batch_invariant && !(in_rounds && size_of(p.in) == 2);
}

inline Plan plan_of(const Launch& launch, const Problem& p, const Machine& m) {
  Plan plan = launch.kernel == Kernel::group   ? group(p, m, launch.packs)
              : launch.kernel == Kernel::block ? block(p, launch.split, launch.packs)
                                               : grid(p, m);
  plan.variant = variant_of(launch);
  plan.whole = takes_whole(launch, plan, p, m);
  return plan;
}

// ---- what can run -----------------------------------------------------------------------------

// A block or a cluster has one row, and a launch counts its blocks with 31 bits.
inline constexpr std::int64_t kMostBlockRows = kMostBlocks / kMostCluster;

constexpr bool fits(const Launch& launch, const Problem& p, const Machine& m) {
  if (p.weighted) return false;
  const std::int64_t n = packs(p);
  const bool general = is_general(p);
  switch (launch.kernel) {
    case Kernel::group:
      return (launch.packs == kGroupPacks || (!general && launch.packs == 2)) &&
             n <= std::int64_t{kWarp} * launch.packs && p.rows <= kMostBlockRows;
    case Kernel::block: {
      const std::int64_t chunk = ceil_div(n, launch.split);
      const std::int64_t room = std::int64_t{kBlockThreads} * launch.packs;
      const bool loops = launch.packs == loop_packs(p);
      const bool kernel =
          general ? loops : launch.packs == 2 || launch.packs == 4 || launch.packs == 8;
      const bool holds =
          chunk <= room || (loops && (!writes_rows(p) || chunk <= room + stage_packs(p, m)));
      return kernel && holds && launch.split <= most_cluster(m) && p.rows <= kMostBlockRows;
    }
    case Kernel::grid: return launch.packs == stream_packs(p);
  }
  return false;
}

// Every launch that could be the quickest for a problem.
inline std::vector<Launch> candidates(const Problem& p, const Machine& m) {
  std::vector<Launch> all;
  const auto add = [&](Launch launch) {
    if (fits(launch, p, m)) all.push_back(launch);
  };
  for (const int held : {2, 4}) add({Kernel::group, held});
  for (int split = 1; split <= most_cluster(m); split *= 2) {
    if (split > 1 && packs(p) / split < 64) break;
    for (const int held : {2, 4, 8}) add({Kernel::block, held, split});
  }
  if (packs(p) >= 2048) add({Kernel::grid, stream_packs(p)});
  return all;
}

// ---- the choice where nothing was measured ----------------------------------------------------

// Short rows: four packs a lane as long as a group still reads 64 bytes side by side.
inline Launch best_group(const Problem& p, const Machine&) {
  const bool wide = packs(p) >= kGroupPacks * 4;
  return {Kernel::group, wide || is_general(p) ? kGroupPacks : 2};
}

// Long rows: a block as long as its registers hold the row, else as few as do. More where the rows are
// too few for all processors and a chunk still keeps a block busy.
inline Launch best_block(const Problem& p, const Machine& m) {
  const std::int64_t n = packs(p);
  const bool general = is_general(p);
  const bool pair = traffic(p.op).reads > 1;
  const int most = general ? kAnyPacks : pair ? 4 : 8;
  int split = 1;
  const auto chunk = [&] { return ceil_div(n, split); };
  while (split < most_cluster(m) && writes_rows(p) &&
         chunk() > std::int64_t{kBlockThreads} * most) {
    split *= 2;
  }
  while (split < most_cluster(m) && p.rows * split < m.gpu.processors && chunk() >= 512) split *= 2;
  if (general) return {Kernel::block, kAnyPacks, split};
  const bool few = p.rows * split < 2 * m.gpu.processors;
  for (const int held : {2, 4, 8}) {
    if (held == 2 && !few) continue;
    if (chunk() <= std::int64_t{kBlockThreads} * held) return {Kernel::block, held, split};
  }
  return {Kernel::block, loop_packs(p), split};
}

inline Launch derived_launch(const Problem& p, const Machine& m) {
  if (const Launch launch = best_group(p, m); fits(launch, p, m)) return launch;
  const Launch launch = best_block(p, m);
  const bool idles = p.rows * launch.split * 2 <= m.gpu.processors &&
                     ceil_div(packs(p), launch.split) >= 2 * kBlockThreads;
  if (!idles && fits(launch, p, m)) return launch;
  return {Kernel::grid, stream_packs(p)};
}

// ---- launches by name -------------------------------------------------------------------------

// gpu_block:4, gpu_cluster:4:8: the packs a thread, and the blocks a row.
inline std::string name_of(const Launch& launch) {
  std::string text = std::string(variant_of(launch)) + ":" + std::to_string(launch.packs);
  if (launch.split > 1) text += ":" + std::to_string(launch.split);
  return text;
}

// What a name says, if it is one of a launch.
inline std::optional<Launch> launch_named(std::string_view text) {
  Launch launch;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view variant = text.substr(0, colon);
  const char* at = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(at, end, launch.packs);
  if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == ':') {
    parsed = std::from_chars(parsed.ptr + 1, end, launch.split);
  }
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  if (launch.packs < 1 || launch.split < 1) return std::nullopt;
  for (const Kernel kernel : {Kernel::group, Kernel::block, Kernel::grid}) {
    launch.kernel = kernel;
    const bool splits =
        kernel == Kernel::block || launch.split == 1;  // the others have no such number
    if (splits && variant_of(launch) == variant) return launch;
  }
  return std::nullopt;
}

// ---- variants by name -------------------------------------------------------------------------

inline Plan group(const Problem& p, const Machine& m) { return plan_of(best_group(p, m), p, m); }

// As few packs a thread as keep the row in registers, more than two; else the kernel that goes on.
inline Plan block(const Problem& p, const Machine& m) {
  for (const int held : {4, 8}) {
    const Launch launch{Kernel::block, held};
    if (packs(p) <= std::int64_t{kBlockThreads} * held && fits(launch, p, m)) {
      return plan_of(launch, p, m);
    }
  }
  return plan_of({Kernel::block, loop_packs(p)}, p, m);
}
inline Plan cluster(const Problem& p, const Machine& m) {
  Launch launch = best_block(p, m);
  launch.split = std::max(launch.split, 2);
  return plan_of(launch, p, m);
}

inline std::string refuse_no_gpu(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  return p.mixed_inputs && p.in == DType::f64 ? "y and dy must both be f64, or neither" : "";
}

inline std::string refuse_grid(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_no_gpu(p, m); !refusal.empty()) return refusal;
  return p.weighted ? "its classes have neither weights nor probabilities" : "";
}

// Whether any launch of a kind of kernel takes the problem.
template <class Plans>
std::string refuse_unless(const Problem& p, const Machine& m, const Plans& launches) {
  if (std::string refusal = refuse_grid(p, m); !refusal.empty()) return refusal;
  for (const Launch& launch : launches) {
    if (fits(launch, p, m)) return {};
  }
  if (p.rows > kMostBlockRows)
    return "it takes at most " + std::to_string(kMostBlockRows) + " rows";
  return "its rows are too long to be held here: " + std::to_string(packs(p)) +
         " packs of 16 bytes";
}

inline std::string refuse_group(const Problem& p, const Machine& m) {
  return refuse_unless(p, m, std::initializer_list<Launch>{{Kernel::group, kGroupPacks}});
}
inline std::string refuse_block(const Problem& p, const Machine& m) {
  return refuse_unless(
      p, m,
      std::initializer_list<Launch>{{Kernel::block, 2}, {Kernel::block, 4}, {Kernel::block, 8}});
}
inline std::string refuse_cluster(const Problem& p, const Machine& m) {
  if (m.device() == Device::cuda && most_cluster(m) < 2) return "it needs clusters (sm_90)";
  return refuse_unless(p, m,
                       std::initializer_list<Launch>{{Kernel::block, loop_packs(p), kMostCluster}});
}

}  // namespace onepass::gpu_rows
