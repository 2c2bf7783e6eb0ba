// Integer arithmetic on sizes.
#pragma once

#include <cstdint>

namespace onepass {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// The least power of two that is not less than n.
constexpr int power_of_two_from(std::int64_t n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

}  // namespace onepass
