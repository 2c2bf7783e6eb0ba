// The launches that ship for rows on a GPU, as pure functions of problem and machine.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "dispatch/machine.hpp"
#include "onepass/plan.hpp"
#include "ops/row/packs.hpp"

namespace onepass::gpu_rows {

inline constexpr int kGroupThreads = 256;  // a block of groups
inline constexpr int kBlockThreads = 512;  // the largest block that holds a row
inline constexpr int kMostCluster = 16;

// Elements that lie apart are counted as if the row began with a pack.
constexpr std::int64_t packs(const Problem& p) {
  return most_packs(p.cols, p.in, p.aligned_rows || !p.unit_stride);
}

// The usual pairs of dtypes without options have kernels of their own.
constexpr bool is_general(const Problem& p) {
  const bool usual = p.op == Op::logsumexp
                         ? p.in != DType::f64
                         : (p.in != DType::f64 && (p.out == p.in || p.out == DType::f32));
  return !usual || !p.plain || !p.whole_rows || !p.unit_stride;
}

// Packs a thread holds: 32 values in registers, fewer of f64; the general row has one size.
constexpr int most_held(const Problem& p) { return is_general(p) || p.in != DType::f32 ? 4 : 8; }

constexpr int power_of_two_from(std::int64_t n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

constexpr std::int64_t most_group_packs(const Problem& p) {
  return std::int64_t{kWarp} * most_held(p);
}
constexpr std::int64_t most_block_packs(const Problem& p) {
  return std::int64_t{kBlockThreads} * most_held(p);
}
constexpr int most_cluster(const Machine& m) { return m.gpu.sm >= 90 ? kMostCluster : 1; }

// Sizes of a thread's share that there are kernels for.
inline std::vector<int> held_sizes(const Problem& p) {
  if (is_general(p)) return {4};
  if (p.in == DType::f32) return {1, 2, 4, 8};
  return {1, 2, 4};
}

// A group of lanes a row. The share that wastes fewest lanes; of equals the one nearest to 16 values a
// thread, which keeps 32 KB of a processor's loads on their way and leaves registers for its warps.
inline Plan group(const Problem& p, const Machine& m) {
  const std::int64_t n = std::max<std::int64_t>(packs(p), 1);
  Plan plan{.resident = true, .general = is_general(p)};
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const int held : held_sizes(p)) {
    const int group_lanes = power_of_two_from(ceil_div(n, held));
    const std::int64_t cost = std::int64_t{group_lanes} * held;
    const bool enough = held * pack_lanes(p.in) <= 16;
    if (group_lanes > kWarp || cost > least || (cost == least && !enough)) continue;
    least = cost;
    plan.packs = held;
    plan.row_threads = group_lanes;
  }
  // Small blocks where large ones would leave processors without any.
  plan.threads = kGroupThreads;
  const auto count = [&] { return ceil_div(p.rows * plan.row_threads, plan.threads); };
  while (plan.threads > kWarp && count() < m.gpu.processors) plan.threads /= 2;
  plan.blocks = blocks_for(count());
  return plan;
}

// `split` blocks a row, `held` packs a thread at most.
inline Plan blocks(const Problem& p, int split, int held) {
  const std::int64_t piece = ceil_div(std::max<std::int64_t>(packs(p), 1), split);
  Plan plan{.split = split, .resident = true, .packs = held, .general = is_general(p)};
  plan.threads = whole_warps(ceil_div(piece, held), kBlockThreads);
  plan.blocks = p.rows * split;
  return plan;
}

// A row of whole blocks' work: as many packs a thread as there are registers for; where the rows are
// too few to fill the processors, fewer, so that there are more threads.
inline Plan block(const Problem& p, const Machine& m) {
  const std::int64_t n = packs(p);
  int held = held_sizes(p).back();
  for (const int each : held_sizes(p)) {
    const bool fits = n <= std::int64_t{kBlockThreads} * each;
    if (fits && (p.rows < m.gpu.processors || ceil_div(n, each) <= 128)) {
      held = each;
      break;
    }
  }
  return blocks(p, 1, held);
}

// Blocks a row: no more packs than a block holds, and enough blocks for all processors as long as a
// piece keeps a block busy.
inline int cluster_size(const Problem& p, const Machine& m) {
  const std::int64_t n = packs(p);
  int split = 1;
  while (split < most_cluster(m) && ceil_div(n, split) > most_block_packs(p) / 2) split *= 2;
  while (split < most_cluster(m) && p.rows * split < m.gpu.processors &&
         ceil_div(n, split * 2) >= 128) {
    split *= 2;
  }
  return split;
}

inline Plan cluster(const Problem& p, const Machine& m) {
  const int split = std::max(2, cluster_size(p, m));
  const std::int64_t piece = ceil_div(packs(p), split);
  int held = held_sizes(p).back();
  for (const int each : held_sizes(p)) {
    if (piece <= std::int64_t{256} * each) {
      held = each;
      break;
    }
  }
  return blocks(p, split, held);
}

// All processors, two blocks each, which share the processor's shared memory.
inline constexpr int kGridBlocks = 2;

inline Plan grid(const Problem& p, const Machine& m) {
  const int most = m.gpu.processors * kGridBlocks;
  const std::int64_t n = std::max<std::int64_t>(packs(p), 1);
  const std::int64_t rows = std::max<std::int64_t>(p.rows, 1);
  const std::int64_t stage = (m.gpu.block_shared / kGridBlocks - 2048) / kPackBytes;
  // As few blocks a row as hold it, but all of them where the rows are few.
  const auto split = static_cast<int>(
      std::clamp<std::int64_t>(std::max(ceil_div(n, stage), most / rows), 1, most));
  const std::int64_t piece = ceil_div(n, split);
  Plan plan{.threads = kBlockThreads, .split = split, .general = is_general(p)};
  plan.resident = piece <= stage;
  plan.blocks = std::min<std::int64_t>(most / split, rows) * split;
  plan.shared_bytes = static_cast<std::size_t>(std::min(piece, stage) * kPackBytes);
  plan.scratch_bytes = static_cast<std::size_t>(2 * plan.blocks) * 2 * size_of(compute_type(p.in));
  return plan;
}

// ---- what each can run ------------------------------------------------------------------------------

inline std::string refuse_no_gpu(const Problem&, const Machine& m) {
  return m.device() == Device::cuda ? "" : "it runs on a GPU";
}

inline std::string refuse_beyond(std::int64_t most, const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_no_gpu(p, m); !refusal.empty()) return refusal;
  if (packs(p) <= most) return {};
  return "its rows have at most " + std::to_string(most) + " packs of 16 bytes here, these have " +
         std::to_string(packs(p));
}

inline std::string refuse_group(const Problem& p, const Machine& m) {
  return refuse_beyond(most_group_packs(p), p, m);
}

// A block or a cluster has one row, and a launch counts its blocks with 31 bits.
inline std::string refuse_many_rows(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_no_gpu(p, m); !refusal.empty()) return refusal;
  constexpr std::int64_t most = kMostBlocks / kMostCluster;
  return p.rows <= most ? "" : "it takes at most " + std::to_string(most) + " rows";
}

inline std::string refuse_block(const Problem& p, const Machine& m) {
  const std::string refusal = refuse_many_rows(p, m);
  return refusal.empty() ? refuse_beyond(most_block_packs(p), p, m) : refusal;
}

inline std::string refuse_cluster(const Problem& p, const Machine& m) {
  if (m.device() == Device::cuda && most_cluster(m) < 2) return "it needs clusters (sm_90)";
  const std::string refusal = refuse_many_rows(p, m);
  return refusal.empty() ? refuse_beyond(most_cluster(m) * most_block_packs(p), p, m) : refusal;
}

}  // namespace onepass::gpu_rows
