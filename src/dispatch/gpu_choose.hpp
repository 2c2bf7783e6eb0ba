// The launch of the kernel that chooses from rows on a GPU, as a pure function of problem and machine.
#pragma once

#include <string>

#include "dispatch/gpu_rows.hpp"

namespace onepass::gpu_choose {

// Keys that a block has room for, and how many of them may be asked for: a tile must find room beside them.
inline constexpr int kMostKeys = 8192;
inline constexpr std::int64_t kMostK = 2048;
inline constexpr std::size_t kSharedBytes = kMostKeys * 8 + 256;

inline std::string refuse(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in == DType::f64) return "it takes f32, f16 and bf16";
  if (p.k > kMostK) return "it chooses at most " + std::to_string(kMostK);
  if (p.rows > gpu_rows::kMostBlockRows) {
    return "it takes at most " + std::to_string(gpu_rows::kMostBlockRows) + " rows";
  }
  return {};
}

// A block a row; a cluster where rows are too few for all processors and a block still has packs to read.
inline Plan plan(const Problem& p, const Machine& m) {
  const std::int64_t n = std::max<std::int64_t>(gpu_rows::packs(p), 1);
  int split = 1;
  while (split < gpu_rows::most_cluster(m) &&
         p.rows * split < m.gpu.processors * gpu_rows::kBlocksAtOnce && ceil_div(n, split) > 512) {
    split *= 2;
  }
  Plan plan{.variant = "gpu_choose", .threads = gpu_rows::kBlockThreads, .split = split};
  plan.resident = true;
  plan.chunk = static_cast<int>(ceil_div(n, split));
  plan.blocks = p.rows * split;
  plan.shared_bytes = kSharedBytes;
  plan.general = gpu_rows::is_general(p);
  plan.packs = plan.general ? 2 : 4;
  plan.looped = true;
  return plan;
}

// Gates: a warp a row.
inline constexpr std::int64_t kMostExperts = 1024;
inline constexpr int kGateThreads = 256;

inline std::string refuse_gate(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in == DType::f64) return "it takes f32, f16 and bf16";
  if (p.cols > kMostExperts || p.k > kWarp)
    return "it takes up to 1024 experts and chooses up to 32";
  return {};
}

inline Plan gate_plan(const Problem& p, const Machine&) {
  Plan plan{.variant = "gpu_gate", .threads = kGateThreads, .resident = true};
  plan.blocks = ceil_div(std::max<std::int64_t>(p.rows, 1), kGateThreads / kWarp);
  plan.row_threads = kWarp;
  return plan;
}

}  // namespace onepass::gpu_choose
