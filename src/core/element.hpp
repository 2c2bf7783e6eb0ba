// The 16-bit elements as they are stored: bits alone. Conversions: core/number.hpp,
// core/cuda/element.cuh.
#pragma once

#include <cstdint>

namespace onepass {

struct F16 {
  std::uint16_t bits;
};

struct BF16 {
  std::uint16_t bits;
};

// A type as a value, for a generic lambda to take.
template <class T>
struct Type {
  using type = T;
};

}  // namespace onepass
