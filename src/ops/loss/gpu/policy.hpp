// When the kernel for weighted classes is the one to run.
#pragma once

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"

namespace onepass::gpu_rows {

inline bool weighted_yields(const Problem& p, const Machine&, Reasons* why) {
  say(why, p.weighted ? "classes have weights or probabilities" : "no class has a weight");
  return !p.weighted;
}

}  // namespace onepass::gpu_rows
