// The launch of a problem of rows on a GPU: the measured one where a point of the tuning table is
// near, else the one derived from the machine's limits.
#pragma once

#include <variant>

#include "core/reasons.hpp"
#include "rows/gpu/plan.hpp"
#include "rows/gpu/policy.hpp"

namespace onepass::gpu_rows {

using RowLaunch = std::variant<GroupLaunch, BlockLaunch, GridLaunch>;

RowLaunch launch_of(const Config& config, const Problem& p, const Machine& m);

struct Best {
  Config config;
  bool measured = false;
};

Best best(const Problem& p, const Machine& m);

// The variant of the best config, and why it is that one.
Kind best_kind(const Problem& p, const Machine& m, Reasons* why);

// What each variant runs with: the best config where it is of that variant, else the variant's own
// best.
RowLaunch group(const Problem& p, const Machine& m, Reasons* reasons);
RowLaunch block(const Problem& p, const Machine& m, Reasons* reasons);
RowLaunch cluster(const Problem& p, const Machine& m, Reasons* reasons);
RowLaunch grid(const Problem& p, const Machine& m, Reasons* reasons);

}  // namespace onepass::gpu_rows
