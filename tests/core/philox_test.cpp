// Known answers of Philox4x32-10, from its authors' own tests.
// Not under sanitizers: numbers in, numbers out.
#include "core/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/select/gumbel.hpp"

namespace onepass {
namespace {

TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox(~std::uint64_t{0}, {ones, ones, ones, ones}),
            (Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, NoiseIsFiniteAndFallsWithTheWord) {
  double before = gumbel(0);
  EXPECT_NEAR(before, 33 * std::log(2.0), 1e-9);
  for (const std::uint32_t word : {1U, 1000U, 1U << 31, 0xfffffff0U, 0xffffffffU}) {
    const double now = gumbel(word);
    EXPECT_TRUE(std::isfinite(now));
    EXPECT_LT(now, before);
    before = now;
  }
}

// The noise of a token that may_exceed rules out is never above the bound.
TEST(PhiloxTest, WhatIsRuledOutCouldNotHaveWon) {
  for (std::uint32_t word = 1; word != 0; word *= 2) {
    for (const double least : {-3.0, 0.0, 5.0, 20.0}) {
      EXPECT_TRUE(may_exceed(word, std::exp(-least)) || gumbel(word) <= least) << word;
    }
  }
}

}  // namespace
}  // namespace onepass
