// The launch for a cross-entropy whose classes have weights, or probabilities as targets (ops/loss/gpu/weighted.cu), as a pure
// function of problem and machine.
#pragma once

#include "rows/gpu/plan.hpp"

namespace onepass::gpu_rows {

inline constexpr int kWeightedPacks = 2;  // a thread has on their way at a time

constexpr std::int64_t weighted_packs(const Problem& p) {
  return std::max<std::int64_t>(1, most_packs(p.cols, p.in, p.aligned_rows));
}

// A pack as it is kept until the row is known: its logits, and the shares of its classes.
constexpr std::int64_t weighted_bytes(const Problem& p) {
  return 2 * static_cast<std::int64_t>(pack_lanes(p.in) * size_of(compute_type(p.in)));
}

// A few lanes of a warp a row, or a block. What is not written is not kept; what a block has no shared memory for is read
// twice.
inline Plan weighted(const Problem& p, const Machine& m) {
  const std::int64_t n = weighted_packs(p);
  const std::int64_t lanes = ceil_div(n, kWeightedPacks);
  const bool short_rows = lanes <= kWarp;
  Plan plan{.variant = "gpu_weighted", .resident = true, .packs = kWeightedPacks, .general = true};
  plan.threads = short_rows ? kGroupThreads : whole_warps(lanes, kBlockThreads);
  plan.row_threads = short_rows ? power_of_two_from(lanes) : plan.threads;
  plan.blocks = blocks_for(ceil_div(p.rows, plan.threads / plan.row_threads));
  if (!writes_rows(p)) return plan;
  const std::int64_t room =
      std::max<std::int64_t>(0, m.gpu.block_shared - (9 << 10)) / weighted_bytes(p);
  const std::int64_t kept = short_rows ? std::int64_t{plan.threads} * kWeightedPacks : n;
  plan.shared_bytes = static_cast<std::size_t>(std::min(kept, room) * weighted_bytes(p));
  plan.resident = kept <= room;
  return plan;
}

}  // namespace onepass::gpu_rows
