// Division by a number that the host knows, as a multiplication and a shift. On a GPU an integer
// division is a chain of some twenty dependent instructions, and every thread waits for those
// before the kernel's first load.
#pragma once

#include <bit>
#include <cstdint>

#include "core/annotate.hpp"

namespace onepass {

// Divides numbers from 0 to 2^31 − 1 by numbers from 1 to 2^31 − 1. With 2^s the least power of two
// that is not less than the divisor, n / by is n · ⌈2^(31 + s) / by⌉ / 2^(31 + s) rounded down:
// rounding the multiplier up adds less than n / 2^31 / by.
class Divisor {
 public:
  constexpr Divisor() = default;
  constexpr explicit Divisor(int by)
      : by_(by),
        shift_(static_cast<int>(std::bit_width(static_cast<unsigned>(by) - 1))),
        multiplier_(static_cast<unsigned>(((std::uint64_t{1} << (31 + shift_)) + by - 1) / by)) {}

  ONEPASS_HD constexpr operator int() const { return by_; }

  ONEPASS_HD friend constexpr int operator/(int n, const Divisor& d) {
    const std::uint64_t product = std::uint64_t{2 * static_cast<unsigned>(n)} * d.multiplier_;
    return static_cast<int>(static_cast<unsigned>(product >> 32) >> d.shift_);
  }
  ONEPASS_HD friend constexpr int operator%(int n, const Divisor& d) { return n - n / d * d.by_; }

 private:
  int by_ = 1;
  int shift_ = 0;
  unsigned multiplier_ = 1U << 31;
};

}  // namespace onepass
