// What each variant can run, as pure functions of problem and machine: the reason it cannot, or
// nothing.
#pragma once

#include <string>

#include "core/problem.hpp"
#include "dispatch/machine.hpp"

namespace onepass {

// Longest row of cpu_short, in elements.
inline constexpr std::int64_t kShortCols = 512;

// What any CPU variant runs on.
inline std::string refuse_gpu(const Problem&, const Machine& m) {
  return m.device() == Device::cpu ? "" : "it runs on a CPU";
}

inline std::string refuse_options(const Problem& p, const Machine&) {
  if (!p.plain) return "it takes no scale, temperature, softcap or mask tensor";
  if (!p.whole_rows) return "it takes no length, causal or window mask";
  if (p.wants_lse) return "it writes no lse";
  return {};
}

// It has probabilities, and nothing beside them.
inline std::string refuse_unfused(const Problem& p, const Machine& m) {
  if (m.device() != Device::cpu) return refuse_gpu(p, m);
  if (!p.weighs) return "it gives probabilities";
  return refuse_options(p, m);
}

inline std::string refuse_long(const Problem& p, const Machine& m) {
  if (m.device() != Device::cpu) return refuse_gpu(p, m);
  if (p.cols > kShortCols) return "its rows have at most 512 elements";
  if (!p.unit_stride) return "its rows must be dense";
  if (p.in == DType::f64 || (p.out != p.in && p.out != DType::f32)) {
    return "it takes f32, f16 and bf16, and gives the same or f32";
  }
  return refuse_options(p, m);
}

inline std::string refuse_rows_apart(const Problem& p, const Machine& m) {
  if (m.device() != Device::cpu) return refuse_gpu(p, m);
  if (!p.unit_rows) return "its rows must be neighbours in memory, element by element";
  return refuse_options(p, m);
}

}  // namespace onepass
