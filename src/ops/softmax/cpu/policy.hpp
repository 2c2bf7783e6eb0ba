// What the variants for a kind of rows refuse, and which variant is best on a CPU.
// rows/cpu/limits.hpp has what all of them refuse.
#pragma once

#include "core/reasons.hpp"
#include "rows/cpu/limits.hpp"
#include "rows/cpu/plan.hpp"
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

namespace cpu_softmax {

enum class Kernel : std::uint8_t { short_rows, lanes, rows, pieces };

inline Kernel best(const Problem& p, const Machine& m, Reasons* why) {
  const bool maps_rows = p.op == Op::softmax || p.op == Op::log_softmax;
  if (maps_rows && refuse_rows_apart(p, m).empty()) {
    say(why, "the axis is not the innermost: neighbours in memory are rows");
    return Kernel::lanes;
  }
  if (best_cut(p, m, why) == Cut::pieces) return Kernel::pieces;
  if (maps_rows && p.cols <= m.tuning.short_cols && refuse_long(p, m).empty()) {
    say(why, p.cols, " columns, at most ", m.tuning.short_cols, ", and no options");
    return Kernel::short_rows;
  }
  return Kernel::rows;
}

}  // namespace cpu_softmax

}  // namespace onepass
