// What rounding to a type can do to a number.
#pragma once

#include <cmath>
#include <limits>

#include "onepass/tensor.hpp"

namespace onepass::cli {

inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f64: return 0x1p-52;
    default: return 0x1p-23;
  }
}

// Below this a result may be flushed or rounded away entirely.
inline double smallest(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-24;
    case DType::f64: return 0x1p-1022;
    default: return 0x1p-126;
  }
}

// Infinite where a type with that largest value would be.
inline double in_range(double v, double most) {
  return std::abs(v) > most ? std::copysign(std::numeric_limits<double>::infinity(), v) : v;
}

inline double finite_size(double v) { return std::isfinite(v) ? std::abs(v) : 0; }

}  // namespace onepass::cli
