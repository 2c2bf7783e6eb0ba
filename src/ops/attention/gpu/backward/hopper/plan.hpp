// The launch of the Hopper backward, as a pure function of problem and machine.
#pragma once

#include <string>

#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::gpu_attention {

inline constexpr int kHopperBackwardKeys = 128;  // of a tile
inline constexpr int kHopperBackwardThreads = 384;
inline constexpr int kHopperBackwardBlocks = 144;  // that run at a time, at most

// Of a tile. Of wide queries fewer, so that registers hold their products and the sums.
constexpr int backward_hopper_queries(int dim) { return dim <= 64 ? 128 : 64; }

// What the kernels are compiled for.
constexpr int backward_hopper_dim(int dim) { return dim <= 64 ? 64 : 128; }

struct BackwardHopperLaunch {
  int dim = 0;
  std::int64_t blocks = 0;
  std::int64_t query_tiles = 0;  // of all heads
  int threads = 0;
  // The workspace: rows of all queries, float32 sums of dq in tiles, and for every tile how many
  // blocks have added to it.
  std::size_t sums_at = 0, added_at = 0;
  std::size_t scratch_bytes = 0;

  Plan plan() const;
  bool operator==(const BackwardHopperLaunch&) const = default;
};

BackwardHopperLaunch backward_hopper(const Problem& p, const Machine& m);
std::string refuse_backward_hopper(const Problem& p, const Machine& m);

}  // namespace onepass::gpu_attention
