// merge_attention_backward: slopes of the merge, empty results, bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "onepass/attention.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

constexpr std::int64_t kRows = 5, kDim = 8;

struct Merge {
  explicit Merge(DType dtype = DType::f64)
      : a(dtype, {kRows, kDim}, numbers(kRows * kDim, 1)),
        b(dtype, {kRows, kDim}, numbers(kRows * kDim, 2)),
        d_o(dtype, {kRows, kDim}, numbers(kRows * kDim, 3)),
        lse_a(DType::f64, {kRows}, {1, 2, 3, -4, 0.5}),
        lse_b(DType::f64, {kRows}, {1.5, 2, -2, -3, 2}),
        d_lse(DType::f64, {kRows}, {0.5, -1, 2, 3, 0}),
        d_a(dtype, {kRows, kDim}),
        d_b(dtype, {kRows, kDim}),
        d_lse_a(DType::f64, {kRows}),
        d_lse_b(DType::f64, {kRows}) {}

  Status run(const Context& context = Context::cpu()) {
    return merge_attention_backward(context, a.tensor(), lse_a.tensor(), b.tensor(), lse_b.tensor(),
                                    d_o.tensor(), d_lse.tensor(), d_a.tensor(), d_lse_a.tensor(),
                                    d_b.tensor(), d_lse_b.tensor());
  }

  // What the gradients are of.
  double loss() const {
    Values o(DType::f64, {kRows, kDim}), lse(DType::f64, {kRows});
    EXPECT_TRUE(merge_attention(Context::cpu(), a.tensor(), lse_a.tensor(), b.tensor(),
                                lse_b.tensor(), o.tensor(), lse.tensor())
                    .ok());
    double sum = 0;
    for (std::int64_t i = 0; i < o.size(); ++i) sum += o.get(i) * d_o.get(i);
    for (std::int64_t i = 0; i < kRows; ++i) sum += lse.get(i) * d_lse.get(i);
    return sum;
  }
  double slope(Values& x, std::int64_t i) {
    constexpr double step = 1e-6;
    const double before = x.get(i);
    x.set(i, before + step);
    const double above = loss();
    x.set(i, before - step);
    const double below = loss();
    x.set(i, before);
    return (above - below) / (2 * step);
  }

  Values a, b, d_o, lse_a, lse_b, d_lse, d_a, d_b, d_lse_a, d_lse_b;
};

TEST(MergeAttentionBackwardTest, GradientsAreTheSlopesOfTheMerge) {
  Merge m;
  ASSERT_TRUE(m.run().ok());
  for (std::int64_t i = 0; i < kRows * kDim; ++i) {
    EXPECT_NEAR(m.d_a.get(i), m.slope(m.a, i), 1e-6) << i;
    EXPECT_NEAR(m.d_b.get(i), m.slope(m.b, i), 1e-6) << i;
  }
  for (std::int64_t i = 0; i < kRows; ++i) {
    EXPECT_NEAR(m.d_lse_a.get(i), m.slope(m.lse_a, i), 1e-6) << i;
    EXPECT_NEAR(m.d_lse_b.get(i), m.slope(m.lse_b, i), 1e-6) << i;
  }
}

TEST(MergeAttentionBackwardTest, WhatWeighsNothingHasNoGradient) {
  Merge m(DType::f32);
  m.lse_a.set(1, -kInf);
  m.lse_a.set(2, -kInf);
  m.lse_b.set(2, -kInf);
  ASSERT_TRUE(m.run().ok());
  EXPECT_EQ(m.d_lse_a.get(1), 0);
  EXPECT_EQ(m.d_lse_b.get(1), m.d_lse.get(1));
  EXPECT_EQ(m.d_lse_b.get(2), 0);
  for (std::int64_t j = 0; j < kDim; ++j) {
    EXPECT_EQ(m.d_a.get(kDim + j), 0);
    EXPECT_EQ(m.d_b.get(kDim + j), m.d_o.get(kDim + j));
    EXPECT_EQ(m.d_a.get(2 * kDim + j), 0);
    EXPECT_EQ(m.d_b.get(2 * kDim + j), 0);
  }
}

TEST(MergeAttentionBackwardTest, BadInput) {
  const auto refused = [](auto spoil) {
    Merge m;
    spoil(m);
    const Status status = m.run();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(std::isnan(m.d_lse_b.get(0)));
    return std::string(status.message());
  };
  const Values wide(DType::f64, {kRows, 16}), few(DType::f64, {2});
  EXPECT_NE(refused([&](Merge& m) { m.b = wide; }).find("b: shape [5, 16] is not that of a"),
            std::string::npos);
  EXPECT_NE(refused([&](Merge& m) { m.d_o = wide; }).find("d_o: shape [5, 16]"), std::string::npos);
  EXPECT_NE(refused([&](Merge& m) { m.d_a = wide; }).find("d_a: shape [5, 16]"), std::string::npos);
  EXPECT_NE(refused([&](Merge& m) { m.d_lse_a = few; }).find("d_lse_a: shape [2]"),
            std::string::npos);
  EXPECT_NE(refused([&](Merge& m) { m.d_lse = few; }).find("d_lse: shape [2]"), std::string::npos);
  Merge m;
  const Status status = merge_attention_backward(
      Context::cpu(), m.a.tensor(), m.lse_a.tensor(), m.b.tensor(), m.lse_b.tensor(),
      m.d_o.tensor(), {}, m.d_o.tensor(), m.d_lse_a.tensor(), m.d_b.tensor(), m.d_lse_b.tensor());
  EXPECT_NE(status.message().find("d_a: overlaps d_o"), std::string::npos) << status.message();
}

TEST(MergeAttentionBackwardTest, AnExplanationComputesNothing) {
  Merge m;
  Explanation told;
  ASSERT_TRUE(m.run(Context::cpu().explaining(told)).ok());
  EXPECT_EQ(told.least_bytes, kRows * (5 * kDim + 5) * 8);
  EXPECT_TRUE(std::isnan(m.d_lse_a.get(0)));
}

}  // namespace
}  // namespace onepass
