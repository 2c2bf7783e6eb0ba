// The oracle of attention against values by hand.
#include "oracle/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

const Row kK = {1, 0, 0, 1};  // two keys of two elements
const Row kV = {10, 20, 30, 60};

TEST(OracleAttentionTest, WeighsValuesByTheSoftmaxOfScores) {
  const Attended a = attention({std::log(3.0), 0}, kK, kV, {}, {});
  EXPECT_NEAR(a.o[0], (3 * 10 + 30) / 4.0, 1e-12);
  EXPECT_NEAR(a.o[1], (3 * 20 + 60) / 4.0, 1e-12);
  EXPECT_NEAR(a.lse, std::log(4.0), 1e-15);
}

TEST(OracleAttentionTest, OptionsMakeTheLogits) {
  const Scores scores{.scale = 2, .softcap = 3, .slope = 0.5, .own = 1, .additive = {0.25, -1}};
  const Attended a = attention({1, 2}, kK, kV, scores, {});
  EXPECT_NEAR(a.z[0], 3 * std::tanh(2.0 / 3) - 0.5 + 0.25, 1e-15);
  EXPECT_NEAR(a.z[1], 3 * std::tanh(4.0 / 3) - 1, 1e-15);
}

TEST(OracleAttentionTest, WhatIsHiddenIsNotThere) {
  const Row v = {10, 20, std::nan(""), kInf};
  const Attended a = attention({1, 2}, kK, v, {.keep = {true, false}}, {});
  EXPECT_EQ(a.o, (Row{10, 20}));
  EXPECT_EQ(a.lse, 1);
  const Attended none = attention({1, 2}, kK, v, {.keep = {false, false}}, {});
  EXPECT_EQ(none.o, (Row{0, 0}));
  EXPECT_EQ(none.lse, -kInf);
}

TEST(OracleAttentionTest, ASinkTakesWeightAndGivesNothing) {
  const Attended a = attention({0, 0}, kK, kV, {}, 0.0);
  EXPECT_NEAR(a.o[0], 40 / 3.0, 1e-12);
  EXPECT_NEAR(a.lse, std::log(3.0), 1e-15);
}

TEST(OracleAttentionTest, ANaNOrInfiniteScoreIsNaN) {
  EXPECT_TRUE(std::isnan(attention({std::nan(""), 0}, kK, kV, {}, {}).o[0]));
  const Attended a = attention({kInf, 1}, Row{1, 0, 1, 1}, kV, {}, {});
  EXPECT_TRUE(std::isnan(a.o[0]));
}

}  // namespace
}  // namespace oracle
