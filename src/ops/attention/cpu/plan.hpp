// The launches of attention on a CPU, as pure functions of problem and machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass {

struct CpuAttentionLaunch {
  int threads = 1;                // in all
  std::int64_t part_keys = 0;     // split-KV: keys per part; 0: not split
  int parts = 1;                  // parts of the longest sequence
  std::int64_t tile_rows = 1;     // rows that share one read of a key
  std::size_t scratch_bytes = 0;  // per thread

  Plan plan() const;
  bool operator==(const CpuAttentionLaunch&) const = default;
};

// As many threads as have enough to do.
int attention_threads(const Problem& p, const Machine& m, Reasons* reasons);

// One query at a time.
CpuAttentionLaunch plan_queries(const Problem& p, const Machine& m, Reasons* reasons);

// Tiles of rows against blocks of keys.
CpuAttentionLaunch plan_tiles(const Problem& p, const Machine& m, Reasons* reasons);

}  // namespace onepass
