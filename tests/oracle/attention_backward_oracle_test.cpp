// The oracle of attention's gradients against differences of the oracle of the forward.
#include "oracle/attention_backward.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Row normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution;
  Row values(count);
  for (double& value : values) value = distribution(random);
  return values;
}

// A query of 3 elements, 5 keys, values of 2 elements, and every option.
struct Problem {
  Row q = normal(3, 1), k = normal(15, 2), v = normal(10, 3);
  Scores scores{.scale = 0.7, .softcap = 2, .slope = 0.3, .own = 3, .additive = normal(5, 4)};
  double sink = 0.4;
  Row d_o = normal(2, 5);
  double d_lse = -0.8;

  Problem() { scores.keep = {true, true, false, true, true}; }

  // What the gradients are of.
  double loss() const {
    const Attended a = attention(q, k, v, scores, sink, 2);
    return a.o[0] * d_o[0] + a.o[1] * d_o[1] + a.lse * d_lse;
  }
  AttentionGradient gradient() const {
    const Attended a = attention(q, k, v, scores, sink, 2);
    return attention_backward(q, k, v, scores, sink, {a.o, a.lse, d_o, d_lse});
  }
  double slope(double& x) {
    constexpr double step = 1e-6;
    const double before = x;
    x = before + step;
    const double above = loss();
    x = before - step;
    const double below = loss();
    x = before;
    return (above - below) / (2 * step);
  }
};

TEST(OracleAttentionBackwardTest, GradientsAreTheSlopesOfTheForward) {
  Problem p;
  const AttentionGradient g = p.gradient();
  for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(g.d_q[j], p.slope(p.q[j]), 1e-8) << j;
  for (std::size_t t = 0; t < 5; ++t) {
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(g.d_score[t] * p.q[j], p.slope(p.k[t * 3 + j]), 1e-8) << t;
    }
    for (std::size_t j = 0; j < 2; ++j) {
      EXPECT_NEAR(g.p[t] * p.d_o[j], p.slope(p.v[t * 2 + j]), 1e-8) << t;
    }
    EXPECT_NEAR(g.d_z[t], p.slope(p.scores.additive[t]), 1e-8) << t;
  }
  EXPECT_NEAR(g.d_sink, p.slope(p.sink), 1e-8);
}

TEST(OracleAttentionBackwardTest, WhatIsHiddenHasNoGradient) {
  Problem p;
  p.k[2 * 3] = p.v[2 * 2] = kNan;  // of the key that is not kept
  p.scores.additive[4] = -kInf;
  const AttentionGradient g = p.gradient();
  for (const std::size_t t : {2, 4}) {
    EXPECT_EQ(g.p[t], 0);
    EXPECT_EQ(g.d_z[t], 0);
    EXPECT_EQ(g.d_score[t], 0);
  }
  for (const double each : g.d_q) EXPECT_TRUE(std::isfinite(each));
}

TEST(OracleAttentionBackwardTest, NothingSeenGivesZeros) {
  Problem p;
  p.scores.keep.assign(5, false);
  const AttentionGradient g =
      attention_backward(p.q, p.k, p.v, p.scores, {}, {{0, 0}, -kInf, p.d_o, p.d_lse});
  EXPECT_EQ(g.d_q, (Row{0, 0, 0}));
  EXPECT_EQ(g.p, Row(5, 0));
}

TEST(OracleAttentionBackwardTest, AnInfiniteOrNaNSumIsNaN) {
  for (const double lse : {kNan, kInf}) {
    Problem p;
    const AttentionGradient g =
        attention_backward(p.q, p.k, p.v, p.scores, {}, {{kNan, kNan}, lse, p.d_o, 0});
    for (const double each : g.d_q) EXPECT_TRUE(std::isnan(each));
    EXPECT_TRUE(std::isnan(g.p[0]));
    EXPECT_EQ(g.p[2], 0);
  }
}

}  // namespace
}  // namespace oracle
