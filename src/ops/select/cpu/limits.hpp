// What the variant that writes probabilities to memory can run.
#pragma once

#include "rows/cpu/limits.hpp"
#include "rows/limits.hpp"

namespace onepass {

inline std::string refuse_unfused(const Problem& p, const Machine& m) {
  if (m.device() != Device::cpu) return refuse_gpu(p, m);
  if (!p.weighs) return "it gives probabilities";
  return refuse_options(p, m);
}

}  // namespace onepass
