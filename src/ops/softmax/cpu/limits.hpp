// What the variants for a kind of rows can run: rows/cpu/limits.hpp has what all of them ask.
#pragma once

#include "rows/cpu/limits.hpp"
#include "rows/limits.hpp"

namespace onepass {

// Longest row of cpu_short, in elements.
inline constexpr std::int64_t kShortCols = 512;

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
