// The state of a long row: what a million additions leave of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "core/long_state.hpp"

namespace onepass {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

LongState fold_long(std::int64_t count, const std::function<float(std::int64_t)>& x) {
  LongState row;
  for (std::int64_t i = 0; i < count; ++i) row = merge(row, LongState(leaf(x(i))));
  return row;
}

TEST(LongStateTest, OneTakesMillionsOfCrumbs) {
  const float crumb = std::log(1e-9F);
  const LongState row = fold_long(1 << 20, [&](std::int64_t i) { return i == 0 ? 0.0F : crumb; });
  const double exact = std::log1p(((1 << 20) - 1) * std::exp(static_cast<double>(crumb)));
  EXPECT_NEAR(logsumexp(row), exact, 1e-14);
}

TEST(LongStateTest, EqualWeightsDoNotDrift) {
  const float z = -0.7F;
  const LongState row = fold_long(1 << 20, [&](std::int64_t i) { return i == 0 ? 0.0F : z; });
  const double weight = std::exp(static_cast<double>(z));
  EXPECT_NEAR(row.d + row.lost, 1 + ((1 << 20) - 1) * weight, 1e-10);
}

TEST(LongStateTest, AMaximumThatCreepsRoundsNothing) {
  constexpr std::int64_t count = 1 << 20;
  const auto x = [](std::int64_t i) { return 1e-6F * static_cast<float>(i); };
  const LongState row = fold_long(count, x);
  double exact = 0;
  for (std::int64_t i = 0; i < count; ++i) exact += std::exp(static_cast<double>(x(i)));
  EXPECT_NEAR(logsumexp(row) / std::log(exact), 1, 1e-8);  // a leaf is a float
}

TEST(LongStateTest, SpecialValues) {
  const LongState empty;
  EXPECT_EQ(logsumexp(empty), -kInf);
  EXPECT_EQ(logsumexp(merge(empty, LongState(leaf(-kInfF)))), -kInf);
  EXPECT_EQ(logsumexp(merge(empty, LongState(leaf(2.0F)))), 2);
  EXPECT_EQ(logsumexp(merge(LongState(leaf(2.0F)), empty)), 2);
  EXPECT_EQ(merge(LongState(leaf(2.0F)), LongState(leaf(kInfF))).m, kInf);
  EXPECT_TRUE(std::isnan(merge(LongState(leaf(2.0F)), LongState(leaf(kInfF))).d));
  EXPECT_TRUE(std::isnan(merge(LongState(leaf(2.0F)), LongState(leaf(kNanF))).d));
  EXPECT_TRUE(std::isnan(merge(LongState(leaf(kNanF)), LongState(leaf(2.0F))).d));
  EXPECT_EQ(narrow<float>(LongState(leaf(3e38F))).m, 3e38F);
}

}  // namespace
}  // namespace onepass
