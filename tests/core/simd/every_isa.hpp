// What the tests of core/simd share: a suite that runs on every instruction set of this machine,
// and vectors of any number of lanes.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/host.hpp"

namespace onepass {

constexpr std::size_t kMostLanes = 64;

class SimdTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(force_isa(GetParam())); }
  void TearDown() override { force_isa(""); }
};

// Padded with zeros to a multiple of three vectors of any width.
template <class T>
std::vector<T> padded(std::vector<T> x) {
  x.resize((x.size() / (3 * kMostLanes) + 1) * 3 * kMostLanes, T(0));
  return x;
}

// NaNs of both signs: all bits of the payload, each alone, and all but each.
template <class T, class Bits>
std::vector<T> nans() {
  constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  constexpr Bits inf = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  constexpr Bits full = (Bits(1) << mantissa) - 1;
  constexpr Bits sign = Bits(1) << (8 * sizeof(T) - 1);
  std::vector<T> x = {std::bit_cast<T>(inf | full), std::bit_cast<T>(sign | inf | full)};
  for (int bit = 0; bit < mantissa; ++bit) {
    for (const Bits payload : {Bits(1) << bit, full ^ (Bits(1) << bit)}) {
      x.push_back(std::bit_cast<T>(inf | payload));
      x.push_back(std::bit_cast<T>(sign | inf | payload));
    }
  }
  return x;
}

}  // namespace onepass
