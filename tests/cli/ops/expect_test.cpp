// A verification that cannot fail proves nothing: real results pass, and every way a kernel might
// spoil them is noticed.
#include "cli/ops/expect.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cli/measure/verify.hpp"
#include "core/number.hpp"

namespace onepass::cli {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;

Values values_of(const GuardedArray& array) {
  Values values;
  for (std::int64_t i = 0; i < array.size(); ++i) values.push_back(array.get(i));
  return values;
}

// A case that has run, what came out, and what should have.
struct Ran {
  Call call;
  Expectation expectation;
  Values out, lse;

  explicit Ran(const std::string& text) {
    Case c;
    Status status = parse_case(text, c);
    if (status.ok()) status = call.make(c);
    if (status.ok()) {
      expectation = expect(call);
      if (status = call.reset(); !status.ok()) return;
      status = call.run(Context::cpu(c.threads), c.variant);
    }
    EXPECT_TRUE(status.ok()) << text << ": " << status.message();
    out = values_of(call.out());
    if (call[array::lse].present()) lse = values_of(call[array::lse]);
  }
};

std::size_t wrong(const Values& got, const std::vector<Expected>& expected) {
  if (got.size() != expected.size()) return std::max(got.size(), expected.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < got.size(); ++i) count += distance(got[i], expected[i]) > 1 ? 1 : 0;
  return count;
}

// Small calls of every op, in and out of every dtype.
const std::vector<std::string>& cases() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> texts;
    for (const char* op : {"softmax", "log_softmax", "logsumexp", "softmax_backward",
                           "log_softmax_backward", "cross_entropy", "cross_entropy_backward"}) {
      for (const char* dtype : {"f32", "f16", "bf16", "f64", "f32:bf16", "bf16:f32", "f32:f64"}) {
        texts.push_back(std::string(op) + " 4x33 " + dtype);
      }
    }
    return texts;
  }();
  return all;
}

TEST(DistanceTest, CountsTolerances) {
  EXPECT_EQ(distance(1, {1, 0}), 0);
  EXPECT_EQ(distance(1, {1, 0.5}), 0);
  EXPECT_EQ(distance(1.25, {1, 0.5}), 0.5);
  EXPECT_EQ(distance(0, {1, 0.5}), 2);
  EXPECT_EQ(distance(1.5, {1, 0.5}), 1);
  EXPECT_GT(distance(1.0000001, {1, 0}), 1);
}

TEST(DistanceTest, NanAndInfMustMatch) {
  EXPECT_EQ(distance(kNan, {kNan, 1}), 0);
  EXPECT_EQ(distance(kInf, {kInf, 0}), 0);
  EXPECT_EQ(distance(-kInf, {-kInf, 0}), 0);
  for (const auto& [got, wanted] : {std::pair{0.0, kNan},
                                    {kInf, kNan},
                                    {kNan, 0.0},
                                    {kNan, kInf},
                                    {kInf, 1.0},
                                    {-kInf, 1.0},
                                    {1e308, kInf},
                                    {-kInf, kInf},
                                    {kInf, -kInf}}) {
    EXPECT_EQ(distance(got, {wanted, 1e300}), kInf) << got << " for " << wanted;
    EXPECT_EQ(distance(got, {wanted, kInf}), kInf) << got << " for " << wanted;
  }
}

// Where a result may be past the largest number of its type, inf is right, of the right sign.
TEST(DistanceTest, InfIsRightWhereTheValueMayBePastTheLargestNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(distance(inf, {.value = 65519, .tolerance = 16, .most = 65504}), 0);
  EXPECT_EQ(distance(inf, {.value = 65490, .tolerance = 16, .most = 65504}), 0);
  EXPECT_EQ(distance(inf, {.value = 65480, .tolerance = 16, .most = 65504}), inf);
  EXPECT_EQ(distance(-inf, {.value = 3, .tolerance = 1e30, .most = 65504}), 0);
  EXPECT_EQ(distance(-inf, {.value = 65519, .tolerance = 16, .most = 65504}), inf);
  EXPECT_EQ(distance(65504, {.value = 65519, .tolerance = 16, .most = 65504}), 15.0 / 16);
  EXPECT_EQ(distance(65504, {.value = 1e6, .tolerance = 16, .most = 65504}), (1e6 - 65504) / 16);
  EXPECT_EQ(distance(inf, {.value = 65519, .tolerance = 16}), inf);
}

TEST(DistanceTest, WhatIsOpenMayBeAnything) {
  for (const double got : {0.0, 1e30, kInf, -kInf, kNan}) {
    EXPECT_EQ(distance(got, {.value = kNan, .tolerance = 1, .open = true}), 0);
  }
}

// Logits without digits: a weight of 0 or 1, and gradients as large as their own errors, which are
// rounded when they are summed and stored.
TEST(ExpectTest, GradientsAsLargeAsTheirErrorsPass) {
  for (const char* text : {"attention_backward 1x1x5x112 bf16 keys=2 fill=extremes seed=20047",
                           "attention_backward 1x1x2x96 f32 keys=31 mask=additive broadcast d_lse "
                           "fill=extremes seed=13457",
                           "attention_backward 1x1x8x64 f64:f32 keys=35 scale=0.5 fill=extremes"}) {
    const Ran ran(text);
    double worst = 0;
    EXPECT_EQ(wrong_answer(ran.call, ran.expectation, worst), "") << text;
  }
}

// A NaN in one query's d_o reaches d_v of the keys that it sees, and no others.
TEST(ExpectTest, ANanInAGradientIsExpectedWhereItIsSeen) {
  Call call;
  Case c;
  ASSERT_TRUE(parse_case("attention_backward 1x1x4x8 f32 mask=causal", c).ok());
  ASSERT_TRUE(call.make(c).ok());
  call[array::d_o].set(8, kNan);  // query 1 sees keys 0 and 1
  const Expectation expectation = expect(call);
  const std::vector<Expected>& d_v = expectation.gradients.at(array::d_v);
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(std::isnan(d_v[t * 8].value), t < 2) << t;
    EXPECT_FALSE(d_v[t * 8].open) << t;
  }
}

TEST(ExpectTest, RealResultsPass) {
  for (const std::string& text : cases()) {
    const Ran ran(text);
    EXPECT_EQ(wrong(ran.out, ran.expectation.out), 0U) << text;
    EXPECT_TRUE(ran.call.out().intact()) << text;
  }
}

TEST(ExpectTest, OneElementAFewTolerancesOffIsFound) {
  for (const std::string& text : cases()) {
    const Ran ran(text);
    for (std::size_t i = 0; i < ran.out.size(); ++i) {
      for (const double factor : {-2.5, 2.5}) {
        Values spoilt = ran.out;
        const Expected& e = ran.expectation.out[i];
        spoilt[i] = e.value + factor * e.tolerance;
        ASSERT_NE(spoilt[i], e.value) << text;  // a tolerance so small that it would mean nothing
        ASSERT_EQ(wrong(spoilt, ran.expectation.out), 1U) << text << " at " << i;
      }
    }
  }
}

// What 2.5 tolerances are worth: a bound that grew would pass the test above and catch nothing.
TEST(ExpectTest, TolerancesAreAFewUlps) {
  const auto ulp_of = [](DType dtype) {
    switch (dtype) {
      case DType::f16: return 0x1p-10;
      case DType::bf16: return 0x1p-7;
      case DType::f64: return 0x1p-52;
      default: return 0x1p-23;
    }
  };
  for (const std::string& text : cases()) {
    const Ran ran(text);
    const Case& c = ran.call.spec();
    const double wide = ulp_of(compute_type(c.in));
    // Logits of this fill reach 30 below the maximum, and each of these is half an ulp of an
    // exponent: what is left for the op are tens of ulps, and one of the output's rounding.
    const double relative = ulp_of(c.out) + 100 * wide;
    double size = 0;
    for (const Expected& e : ran.expectation.out) size = std::max(size, std::abs(e.value));
    const bool softmax = c.op == Op::softmax;
    for (const Expected& e : ran.expectation.out) {
      const double most = relative * (softmax ? std::abs(e.value) : size + 1) + 0x1p-23;
      EXPECT_LE(e.tolerance, most) << text << ", " << e.value;
      EXPECT_GT(e.tolerance, 0) << text;
    }
  }
}

// y without element k in the sum: what a tile, lane or thread too few does.
TEST(ExpectTest, ALostElementIsFound) {
  for (const char* dtype : {"f32", "f16", "bf16", "f64"}) {
    const Ran softmax(std::string("softmax 4x33 fill=ties ") + dtype);
    const Ran log_softmax(std::string("log_softmax 4x33 fill=ties ") + dtype);
    const Ran lse(std::string("logsumexp 4x33 fill=ties ") + dtype);
    for (std::size_t k = 0; k < 33; k += 4) {  // one of the nine maxima
      for (std::size_t row = 0; row < 4; ++row) {
        const double rest = 1 - softmax.expectation.out[row * 33 + k].value;
        Values weights = softmax.out;
        Values logs = log_softmax.out;
        Values sums = lse.out;
        for (std::size_t c = 0; c < 33; ++c) {
          weights[row * 33 + c] /= rest;
          logs[row * 33 + c] -= std::log(rest);
        }
        sums[row] += std::log(rest);
        EXPECT_GT(wrong(weights, softmax.expectation.out), 0U) << dtype;
        EXPECT_GT(wrong(logs, log_softmax.expectation.out), 0U) << dtype;
        EXPECT_EQ(wrong(sums, lse.expectation.out), 1U) << dtype;
      }
    }
  }
}

// The same for the sums of the backward ops.
TEST(ExpectTest, ALostGradientIsFound) {
  for (const char* dtype : {"f32", "f16", "bf16", "f64"}) {
    const Ran ran(std::string("softmax_backward 4x33 fill=ties ") + dtype);
    for (std::size_t row = 0; row < 4; ++row) {
      const auto y = [&](std::size_t c) {
        return ran.call.in().get(static_cast<std::int64_t>(row * 33 + c));
      };
      const auto dy = [&](std::size_t c) {
        return ran.call[array::dy].get(static_cast<std::int64_t>(row * 33 + c));
      };
      std::size_t k = 0;  // the one that counts most
      for (std::size_t c = 1; c < 33; ++c) {
        if (std::abs(y(c) * dy(c)) > std::abs(y(k) * dy(k))) k = c;
      }
      Values spoilt = ran.out;
      for (std::size_t c = 0; c < 33; ++c) spoilt[row * 33 + c] += y(k) * dy(k) * y(c);
      EXPECT_GT(wrong(spoilt, ran.expectation.out), 0U) << dtype;
    }
  }
}

TEST(ExpectTest, ARowThatIsScaledIsFound) {
  for (const char* text :
       {"softmax 4x33 f32", "softmax 4x33 f16", "softmax 4x33 bf16", "softmax 4x33 f64",
        "softmax 2x4097 f32", "softmax 2x4097 f64", "softmax_backward 4x33 f32",
        "cross_entropy_backward 4x33 f32", "cross_entropy_backward 4x33 bf16"}) {
    const Ran ran(text);
    const auto cols = static_cast<std::size_t>(ran.call.spec().cols());
    Values spoilt = ran.out;
    for (std::size_t c = 0; c < cols; ++c) spoilt[cols + c] *= 1 + 1 / static_cast<double>(cols);
    EXPECT_GT(wrong(spoilt, ran.expectation.out), cols / 4) << text;
  }
}

TEST(ExpectTest, TwoElementsSwappedAreFound) {
  for (const std::string& text : cases()) {
    const Ran ran(text);
    Values spoilt = ran.out;
    const auto [low, high] = std::minmax_element(spoilt.begin(), spoilt.end());
    std::iter_swap(low, high);
    EXPECT_EQ(wrong(spoilt, ran.expectation.out), 2U) << text;
  }
  const Ran rows("softmax 4x33 f32");  // and two whole rows
  Values spoilt = rows.out;
  std::swap_ranges(spoilt.begin(), spoilt.begin() + 33, spoilt.begin() + 33);
  EXPECT_GT(wrong(spoilt, rows.expectation.out), 60U);
}

TEST(ExpectTest, AnElementLeftUnwrittenIsFound) {
  for (const std::string& text : cases()) {
    Ran ran(text);
    ASSERT_TRUE(ran.call.reset().ok());  // and nothing runs
    const Values unwritten = values_of(ran.call.out());
    EXPECT_EQ(wrong(unwritten, ran.expectation.out), ran.out.size()) << text;
    for (std::size_t i = 0; i < ran.out.size(); ++i) {
      Values spoilt = ran.out;
      spoilt[i] = unwritten[i];
      ASSERT_EQ(wrong(spoilt, ran.expectation.out), 1U) << text << " at " << i;
    }
  }
}

TEST(ExpectTest, TheLseIsCheckedToo) {
  for (const char* text :
       {"softmax 4x33 lse f32", "log_softmax 4x33 lse f64", "cross_entropy 4x33 lse bf16"}) {
    const Ran ran(text);
    ASSERT_EQ(ran.expectation.lse.size(), 4U) << text;
    EXPECT_EQ(wrong(ran.lse, ran.expectation.lse), 0U) << text;
    for (std::size_t r = 0; r < 4; ++r) {
      Values spoilt = ran.lse;
      spoilt[r] *= 1 + 1e-4;
      EXPECT_EQ(wrong(spoilt, ran.expectation.lse), 1U) << text;
      spoilt[r] = kNan;
      EXPECT_EQ(wrong(spoilt, ran.expectation.lse), 1U) << text;
    }
    Ran unwritten(text);
    ASSERT_TRUE(unwritten.call.reset().ok());
    EXPECT_EQ(wrong(values_of(unwritten.call[array::lse]), unwritten.expectation.lse), 4U) << text;
  }
  EXPECT_TRUE(Ran("softmax 4x33").expectation.lse.empty());
  EXPECT_TRUE(Ran("cross_entropy_backward 4x33 lse").expectation.lse.empty());  // there, an input
}

// The output of a call that ignores an option, held against what the option asks for.
TEST(ExpectTest, AnOptionThatIsIgnoredIsFound) {
  struct Option {
    const char* call;
    const char* option;
  };
  for (const Option& o : {Option{"softmax 4x33", "scale=1.01"},
                          {"softmax 4x33", "temperature=1.01"},
                          {"softmax 4x33", "softcap=20"},
                          {"softmax 4x33", "mask=causal"},
                          {"softmax 4x33", "window=3,1"},
                          {"softmax 4x33 fill=ascending", "scale=row"},
                          {"softmax 4x33 fill=ascending", "temperature=row"},
                          {"softmax 4x33 fill=ascending", "mask=additive"},
                          {"softmax 4x33 fill=ascending", "mask=boolean"},
                          {"softmax 4x33 fill=ascending", "mask=lengths"},
                          {"softmax 4x33 fill=ascending bf16", "mask=boolean broadcast"},
                          {"log_softmax 4x33", "temperature=1.01"},
                          {"logsumexp 4x33", "scale=1.01"},
                          {"logsumexp 4x33", "mask=causal"},
                          {"softmax_backward 4x33", "temperature=0.99"},
                          {"log_softmax_backward 4x33 f16", "softcap=5"},
                          {"cross_entropy 4x33", "smoothing=0.01"},
                          {"cross_entropy 4x33", "z_loss=0.001"},
                          {"cross_entropy 4x33", "ignore"},
                          {"cross_entropy 4x33 f16", "smoothing=0.1"},
                          {"cross_entropy 4x33", "reduction=mean"},
                          {"cross_entropy 4x33 reduction=mean", "ignore"},
                          {"cross_entropy_backward 4x33", "smoothing=0.01"},
                          {"cross_entropy_backward 4x33", "z_loss=0.001"},
                          {"cross_entropy_backward 4x33", "ignore"},
                          {"cross_entropy_backward 4x33", "reduction=mean"},
                          {"cross_entropy_backward 4x33 bf16", "scale=1.1"}}) {
    const Ran without(o.call);
    const Ran with(std::string(o.call) + " " + o.option);
    EXPECT_EQ(wrong(with.out, with.expectation.out), 0U) << o.call << " " << o.option;
    EXPECT_GT(wrong(without.out, with.expectation.out), 0U) << o.call << " " << o.option;
  }
}

TEST(ExpectTest, SpecialValuesAreExpectedWhereTheyBelong) {
  const auto row = [](const char* text, std::size_t r) {
    const Ran ran(text);
    EXPECT_EQ(wrong(ran.out, ran.expectation.out), 0U) << text;
    Values values;
    for (std::size_t c = 0; c < 33; ++c) values.push_back(ran.expectation.out[r * 33 + c].value);
    return values;
  };
  const auto all = [](const Values& values, auto is) {
    return std::all_of(values.begin(), values.end(), is);
  };
  const auto nan = [](double v) { return std::isnan(v); };
  const auto finite = [](double v) { return std::isfinite(v); };
  const auto zero = [](double v) { return v == 0; };
  EXPECT_TRUE(all(row("softmax 4x33 fill=nan", 0), nan));
  EXPECT_TRUE(all(row("softmax 4x33 fill=nan", 1), finite));
  EXPECT_TRUE(all(row("softmax 4x33 fill=plus_inf", 1), nan));
  EXPECT_TRUE(all(row("softmax 4x33 fill=plus_inf", 0), finite));
  EXPECT_TRUE(all(row("softmax 4x33 fill=all_minus_inf", 0), zero));
  EXPECT_TRUE(
      all(row("log_softmax 4x33 fill=all_minus_inf", 2), [](double v) { return v == -kInf; }));
  EXPECT_TRUE(all(row("cross_entropy_backward 4x33 ignore", 1), zero));
}

// What is masked weighs nothing, not a little.
TEST(ExpectTest, NothingMeansNothing) {
  const Ran ran("softmax 4x33 f32 mask=causal");
  const std::size_t hidden = 32;  // of the first query
  ASSERT_EQ(ran.expectation.out[hidden].value, 0);
  Values spoilt = ran.out;
  spoilt[hidden] = 1e-35;
  EXPECT_EQ(wrong(spoilt, ran.expectation.out), 1U);
}

// It is the reduced loss that is rounded to the output's dtype: sums leave the range of f16 long
// before their rows do, and a mean may be back in it.
TEST(ExpectTest, AReducedLossIsRoundedOnceAtTheEnd) {
  const Ran sum("cross_entropy 8x64 f16 reduction=sum fill=extremes");
  ASSERT_EQ(sum.out.size(), 1U);
  EXPECT_EQ(sum.out[0], kInf);
  EXPECT_GT(sum.expectation.out[0].value, 65504);
  EXPECT_EQ(wrong(sum.out, sum.expectation.out), 0U) << sum.expectation.out[0].value;
  const Ran rows("cross_entropy 8x64 f16 reduction=none fill=extremes seed=4");
  const Ran mean("cross_entropy 8x64 f16 reduction=mean fill=extremes seed=4");
  EXPECT_EQ(*std::max_element(rows.out.begin(), rows.out.end()), kInf);
  EXPECT_TRUE(std::isfinite(mean.out[0]));
  EXPECT_EQ(wrong(mean.out, mean.expectation.out), 0U) << mean.expectation.out[0].value;
}

}  // namespace
}  // namespace onepass::cli
