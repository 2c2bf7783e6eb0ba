// Not under sanitizers: numbers in, numbers out.
#include "core/divisor.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace onepass {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

void expect_right(int n, int by) {
  const Divisor divisor(by);
  EXPECT_EQ(n / divisor, n / by) << n << " / " << by;
  EXPECT_EQ(n % divisor, n % by) << n << " % " << by;
}

TEST(DivisorTest, SmallNumbersByEachOther) {
  for (int by = 1; by < 300; ++by) {
    for (int n = 0; n < 1000; ++n) expect_right(n, by);
  }
}

// Where a quotient changes, a multiplier that is a little off is seen first; most of
// all at the largest.
TEST(DivisorTest, BesideMultiplesAndPowersOfTwo) {
  for (int power = 0; power < 31; ++power) {
    for (const int by : {(1 << power) - 1, 1 << power, (1 << power) + 1, kMost >> power}) {
      if (by < 1) continue;
      for (const int times : {0, 1, 2, 3, kMost / by / 2, kMost / by - 1, kMost / by}) {
        if (times < 0) continue;
        for (const std::int64_t beside : {-1, 0, 1}) {
          const std::int64_t n = std::int64_t{times} * by + beside;
          if (n >= 0 && n <= kMost) expect_right(static_cast<int>(n), by);
        }
      }
      expect_right(kMost, by);
    }
  }
}

RC_GTEST_PROP(DivisorTest, AnyNumberByAnyOther, ()) {
  const int by = *rc::gen::inRange(1, kMost);
  const int n = *rc::gen::inRange(0, kMost);
  RC_ASSERT(n / Divisor(by) == n / by);
  RC_ASSERT(n % Divisor(by) == n % by);
}

TEST(DivisorTest, IsOneUnlessToldOtherwise) {
  EXPECT_EQ(kMost / Divisor(), kMost);
  EXPECT_EQ(kMost % Divisor(), 0);
  EXPECT_EQ(static_cast<int>(Divisor(7)), 7);
}

}  // namespace
}  // namespace onepass
