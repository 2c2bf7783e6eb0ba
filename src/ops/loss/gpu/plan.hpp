// The launch for a cross-entropy whose classes have weights, or probabilities as targets
// (ops/loss/gpu/weighted.cu), as a pure function of problem and machine.
#pragma once

#include "rows/gpu/plan.hpp"
#include "rows/packs.hpp"

namespace onepass::gpu_rows {

inline constexpr int kWeightedPacks = 2;  // a thread has on their way at a time

constexpr std::int64_t weighted_packs(const Problem& p) {
  return std::max<std::int64_t>(1, most_any_packs(p.cols, p.in, p.aligned_rows));
}

// A pack as it is kept until the row is known: its logits, and the shares of its classes.
constexpr std::int64_t weighted_bytes(const Problem& p) {
  return 2 * static_cast<std::int64_t>(any_lanes(p.in) * size_of(compute_type(p.in)));
}

struct WeightedLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  int row_threads = 1;  // of a block that share a row
  int staged = 0;       // packs that a block keeps in shared memory
  std::size_t shared_bytes = 0;
  bool resident = false;  // a row is read once

  Plan plan() const;
  bool operator==(const WeightedLaunch&) const = default;
};

// A few lanes of a warp per row, or a block. What is not written is not kept; what a block has no
// shared memory for is read twice.
inline WeightedLaunch weighted(const Problem& p, const Machine& m) {
  const std::int64_t n = weighted_packs(p);
  const std::int64_t lanes = ceil_div(n, kWeightedPacks);
  const bool short_rows = lanes <= kWarp;
  WeightedLaunch launch{.resident = true};
  launch.threads = short_rows ? kGroupThreads : whole_warps(lanes, kBlockThreads);
  launch.row_threads = short_rows ? power_of_two_from(lanes) : launch.threads;
  launch.blocks = blocks_for(ceil_div(p.rows, launch.threads / launch.row_threads));
  if (!writes_rows(p)) return launch;
  const std::int64_t room =
      std::max<std::int64_t>(0, m.gpu.block_shared - (9 << 10)) / weighted_bytes(p);
  const std::int64_t kept = short_rows ? std::int64_t{launch.threads} * kWeightedPacks : n;
  launch.staged = static_cast<int>(std::min(kept, room));
  launch.shared_bytes = static_cast<std::size_t>(launch.staged * weighted_bytes(p));
  launch.resident = kept <= room;
  return launch;
}

}  // namespace onepass::gpu_rows
