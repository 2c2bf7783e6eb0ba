// The launch of attention's backward on a CPU, as a pure function of problem and machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass {

struct CpuAttentionBackwardLaunch {
  int threads = 1;                  // in all
  std::int64_t tile_keys = 0;       // keys whose gradients a thread keeps; 0: all of a kv head
  std::size_t scratch_bytes = 0;    // per thread
  std::size_t workspace_bytes = 0;  // that all threads share
  double extra_bytes = 0;           // moved beside inputs and outputs

  Plan plan() const;
  bool operator==(const CpuAttentionBackwardLaunch&) const = default;
};

// A kv head at a time, all its keys' gradients in a buffer.
CpuAttentionBackwardLaunch plan_backward_heads(const Problem& p, const Machine& m,
                                               Reasons* reasons);

// Tiles of keys against tiles of rows.
CpuAttentionBackwardLaunch plan_backward_tiles(const Problem& p, const Machine& m,
                                               Reasons* reasons);

}  // namespace onepass
