// Samples: that they follow the distribution that each filter and combination leaves, and that a
// row's draw depends on nothing but the row, its seed and its offset.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "onepass/onepass.hpp"
#include "ops/select/gumbel.hpp"
#include "oracle/oracle.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

constexpr std::int64_t kTokens = 24;

std::vector<double> logits(std::int64_t tokens = kTokens, double spread = 1.5) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> z(static_cast<std::size_t>(tokens));
  for (double& value : z) value = static_cast<float>(normal(random));
  return z;
}

// Draws of one row, as many rows of a batch.
std::vector<std::int64_t> draws(const std::vector<double>& z, std::int64_t count,
                                SampleOptions options, int threads = 2) {
  const auto tokens_of_row = static_cast<std::int64_t>(z.size());
  Values x(DType::f32, {count, tokens_of_row});
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = 0; c < tokens_of_row; ++c)
      x.set(r * tokens_of_row + c, z[static_cast<std::size_t>(c)]);
  }
  Values token(DType::i64, {count});
  const Status status = sample(Context::cpu(threads), x.tensor(), token.tensor(), options);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::int64_t> tokens;
  for (std::int64_t r = 0; r < count; ++r)
    tokens.push_back(static_cast<std::int64_t>(token.get(r)));
  return tokens;
}

// The statistic is about as large as the degrees of freedom; six sigma above is a fault, not luck.
void expect_follows(const std::vector<double>& p, const std::vector<std::int64_t>& tokens,
                    const std::string& what) {
  std::vector<double> seen(p.size(), 0);
  for (const std::int64_t t : tokens) {
    ASSERT_GE(t, 0);
    ASSERT_LT(t, static_cast<std::int64_t>(p.size()));
    ASSERT_GT(p[static_cast<std::size_t>(t)], 0) << what << ": token " << t << " was taken out";
    seen[static_cast<std::size_t>(t)] += 1;
  }
  const auto n = static_cast<double>(tokens.size());
  double statistic = 0;
  double freedom = -1;
  double rest_seen = 0, rest = 0;  // cells that are too rare stand together
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (n * p[i] < 8) {
      rest += n * p[i];
      rest_seen += seen[i];
      continue;
    }
    statistic += (seen[i] - n * p[i]) * (seen[i] - n * p[i]) / (n * p[i]);
    freedom += 1;
  }
  if (rest >= 8) {
    statistic += (rest_seen - rest) * (rest_seen - rest) / rest;
    freedom += 1;
  }
  EXPECT_LE(statistic, freedom + 6 * std::sqrt(2 * std::max(freedom, 1.0))) << what;
}

TEST(SampleTest, FollowsTheDistributionThatEachFilterLeavesSlow) {
  const std::vector<double> z = logits();
  std::int64_t seed = 1;
  for (const std::int64_t top_k : {0, 1, 5, 12}) {
    for (const double top_p : {1.0, 0.9, 0.4}) {
      for (const double min_p : {0.0, 0.1}) {
        for (const double temperature : {1.0, 2.0}) {
          oracle::Row scaled = oracle::logits(z, {.temperature = temperature});
          const oracle::Row p = oracle::filtered(scaled, top_k, top_p, min_p);
          const auto tokens = draws(z, 20000,
                                    {.temperature = temperature,
                                     .top_k = top_k,
                                     .top_p = top_p,
                                     .min_p = min_p,
                                     .seed = ++seed});
          expect_follows(p, tokens,
                         "top_k " + std::to_string(top_k) + " top_p " + std::to_string(top_p) +
                             " min_p " + std::to_string(min_p) + " T " +
                             std::to_string(temperature));
        }
      }
    }
  }
}

// More are left than the candidates that one read finds.
TEST(SampleTest, FollowsTheDistributionOfAWideNucleusSlow) {
  std::vector<double> z = logits(700, 0.5);
  std::int64_t seed = 100;
  for (const bool ties : {false, true}) {
    if (ties) {
      for (double& value : z) value = std::round(2 * value) / 2;
    }
    for (const double top_p : {1.0, 0.7, 0.99}) {
      for (const double min_p : {0.0, 0.1}) {
        if (top_p == 1 && min_p == 0) continue;
        const oracle::Row p = oracle::filtered(z, 0, top_p, min_p);
        const auto left = std::count_if(p.begin(), p.end(), [](double each) { return each > 0; });
        ASSERT_GT(left, 255);
        const auto tokens = draws(z, 10000, {.top_p = top_p, .min_p = min_p, .seed = ++seed});
        expect_follows(p, tokens,
                       "top_p " + std::to_string(top_p) + " min_p " + std::to_string(min_p) +
                           (ties ? " with ties" : ""));
      }
    }
  }
}

// The sum that top_p is a part of is rounded, and may be more than its parts: then all
// are left, not one.
TEST(SampleTest, ATopPNearOneLeavesAll) {
  for (const double top_p : {0.9999999, 0.99999994, 0.999999999, 1 - 1e-15}) {
    int argmax = 0;
    for (std::int64_t row = 0; row < 30; ++row) {
      const std::vector<double> z = logits(40000, 0.8 + 0.01 * static_cast<double>(row));
      const auto likeliest = std::max_element(z.begin(), z.end()) - z.begin();
      argmax += draws(z, 1, {.top_p = top_p, .seed = row})[0] == likeliest ? 1 : 0;
    }
    EXPECT_LE(argmax, 2) << top_p;  // of 30, at less than a thousandth each
  }
}

TEST(SampleTest, OffsetsAndSeedsAreStreamsOfTheirOwn) {
  const std::vector<double> z = logits();
  const oracle::Row p = oracle::softmax(z);
  constexpr std::int64_t count = 20000;
  Values numbers(DType::i64, {count});
  for (std::int64_t i = 0; i < count; ++i) numbers.set(i, static_cast<double>(i));
  Values same(DType::i64, {count}, std::vector<double>(count, 5));
  expect_follows(p, draws(z, count, {.seed = numbers.tensor()}), "a seed a row");
  expect_follows(p, draws(z, count, {.seed = same.tensor(), .offset = numbers.tensor()}),
                 "an offset a row");
  const auto all_same =
      draws(z, 100, {.seed = Values(DType::i64, {100}, std::vector<double>(100, 5)).tensor()});
  for (const std::int64_t t : all_same) EXPECT_EQ(t, all_same[0]);
}

TEST(SampleTest, ARowsDrawDoesNotDependOnTheBatchOrTheCut) {
  constexpr std::int64_t rows = 6, cols = 30011;
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 2);
  Values x(DType::f32, {rows, cols});
  for (std::int64_t i = 0; i < rows * cols; ++i) x.set(i, normal(random));
  const Values seeds(DType::i64, {rows}, {11, 12, 13, 14, 15, 16});
  for (const double top_p : {1.0, 0.9}) {
    for (const std::int64_t top_k : {0, 40}) {
      Values together(DType::i64, {rows});
      Values logprob(DType::f32, {rows});
      SampleOptions options{
          .top_k = top_k, .top_p = top_p, .seed = seeds.tensor(), .logprob = logprob.tensor()};
      ASSERT_TRUE(sample(Context::cpu(2), x.tensor(), together.tensor(), options).ok());
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto* row = static_cast<const float*>(x.tensor().data) + r * cols;
        const Values seed(DType::i64, {1}, {seeds.get(r)});
        for (const int threads : {1, 3}) {
          Values alone(DType::i64, {1});
          Values own(DType::f32, {1});
          options.seed = seed.tensor();
          options.logprob = own.tensor();
          options.variant = threads > 1 ? "cpu_split" : "cpu_row";
          ASSERT_TRUE(
              sample(Context::cpu(threads), {row, DType::f32, {1, cols}}, alone.tensor(), options)
                  .ok());
          EXPECT_EQ(alone.get(0), together.get(r)) << r << ", " << threads;
          EXPECT_EQ(own.get(0), logprob.get(r));
        }
      }
    }
  }
}

// The definition, token by token: z and the noise of its own word.
TEST(SampleTest, IsTheWinnerOfTheRace) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  for (const std::int64_t cols : {1, 3, 1000, 5003}) {
    for (std::int64_t seed = 1; seed < 30; ++seed) {
      std::vector<float> x(static_cast<std::size_t>(cols));
      for (float& value : x) value = normal(random);
      std::int64_t expected = 0;
      double best = -kInf;
      const std::uint64_t key = row_seed(seed, true, 0);
      for (std::int64_t c = 0; c < cols; ++c) {
        const double score =
            static_cast<double>(x[static_cast<std::size_t>(c)]) + gumbel_of_token(key, 9, c);
        if (score > best) expected = c;
        best = std::max(best, score);
      }
      const Values seeds(DType::i64, {}, {static_cast<double>(seed)});
      Values token(DType::i64, {});
      ASSERT_TRUE(sample(Context::cpu(1), {x.data(), DType::f32, {cols}}, token.tensor(),
                         {.seed = seeds.tensor(), .offset = 9})
                      .ok());
      EXPECT_EQ(token.get(0), static_cast<double>(expected)) << cols << ", seed " << seed;
    }
  }
}

TEST(SampleTest, TemperatureZeroIsTheFirstOfTheLargest) {
  std::vector<double> z = logits();
  z[4] = z[17] = 9;
  for (const std::int64_t t : draws(z, 50, {.temperature = 0.0})) EXPECT_EQ(t, 4);
  // Greedy rows beside others.
  const Values temperature(DType::f32, {4}, {0, 1, 0, 5});
  const auto mixed = draws(z, 4, {.temperature = temperature.tensor(), .seed = 3});
  EXPECT_EQ(mixed[0], 4);
  EXPECT_EQ(mixed[2], 4);
}

TEST(SampleTest, RowsThatHaveNothingToChooseFromAreMarked) {
  Values x(DType::f32, {4, 3}, {0, 1, 2, -kInf, -kInf, -kInf, 0, kNan, 1, 5, kInf, 0});
  Values token(DType::i32, {4});
  Values logprob(DType::f32, {4});
  Values valid(DType::u8, {4});
  ASSERT_TRUE(sample(Context::cpu(1), x.tensor(), token.tensor(),
                     {.top_k = 2, .logprob = logprob.tensor(), .valid = valid.tensor()})
                  .ok());
  EXPECT_EQ(valid.get(0), 1);
  EXPECT_GE(token.get(0), 1);
  for (const std::int64_t r : {1, 2, 3}) {
    EXPECT_EQ(valid.get(r), 0) << r;
    EXPECT_EQ(token.get(r), -1);
    EXPECT_TRUE(std::isnan(logprob.get(r)));
  }
}

TEST(SampleTest, WhatIsWrongIsNamedWithItsValue) {
  const Values x(DType::f32, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  Values token(DType::i64, {2});
  const auto refused = [&](const SampleOptions& options, std::string_view part) {
    const Status status = sample(Context::cpu(1), x.tensor(), token.tensor(), options);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  refused({.temperature = -0.5}, "temperature: -0.5");
  refused({.temperature = kNan}, "temperature: nan");
  refused({.top_k = -1}, "top_k: -1");
  refused({.top_p = 0.0}, "top_p: 0");
  refused({.top_p = 1.5}, "top_p: 1.5");
  refused({.min_p = -0.1}, "min_p: -0.1");
  refused({.min_p = 2.0}, "min_p: 2");
  const Values bad_p(DType::f32, {2}, {0.5, 1.25});
  refused({.top_p = bad_p.tensor()}, "top_p: 1.25 at row 1");
  const Values bad_t(DType::f32, {2}, {-1, 1});
  refused({.temperature = bad_t.tensor()}, "temperature: -1 at row 0");
  const Values floats(DType::f32, {2}, {1, 1});
  refused({.seed = floats.tensor()}, "seed: dtype f32");
  Values wrong(DType::f32, {2});
  EXPECT_FALSE(sample(Context::cpu(1), x.tensor(), wrong.tensor()).ok());
}

TEST(GateTest, WhatIsWrongIsNamedWithItsValue) {
  const Values scores(DType::f32, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto refused = [&](std::int64_t k, const GateOptions& options, std::string_view part) {
    Values weights(DType::f32, {2, k});
    Values experts(DType::i32, {2, k});
    const Status status =
        gate(Context::cpu(1), scores.tensor(), weights.tensor(), experts.tensor(), options);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  refused(5, {}, "K = 5");
  const Values bias(DType::f32, {3}, {0, 0, 0});
  refused(2, {.bias = bias.tensor()}, "bias: shape [3]");
  refused(2, {.scale = kInf}, "scale: inf");
}

// Of subnormal weights: 1 / their sum is infinite.
TEST(GateTest, FaintWeightsRenormalizedAreFinite) {
  const Values scores(DType::f32, {1, 3}, {100, 2, 1});
  const Values bias(DType::f32, {3}, {0, 10, 10});
  Values weights(DType::f32, {1, 2});
  Values experts(DType::i32, {1, 2});
  ASSERT_TRUE(gate(Context::cpu(1), scores.tensor(), weights.tensor(), experts.tensor(),
                   {.bias = bias.tensor(), .renormalize = true})
                  .ok());
  EXPECT_EQ(experts.get(0), 1);
  for (std::int64_t i = 0; i < 2; ++i)
    EXPECT_TRUE(weights.get(i) >= 0 && weights.get(i) <= 1) << weights.get(i);
}

TEST(GateTest, ABiasChoosesAndDoesNotWeigh) {
  const Values scores(DType::f32, {1, 4}, {0, 1, 2, 3});
  const Values bias(DType::f32, {4}, {10, 0, 0, 0});
  Values weights(DType::f32, {1, 2});
  Values experts(DType::i64, {1, 2});
  ASSERT_TRUE(gate(Context::cpu(1), scores.tensor(), weights.tensor(), experts.tensor(),
                   {.score = GateScore::sigmoid, .bias = bias.tensor()})
                  .ok());
  EXPECT_EQ(experts.get(0), 0);
  EXPECT_EQ(experts.get(1), 3);
  EXPECT_FLOAT_EQ(static_cast<float>(weights.get(0)), 0.5F);
  EXPECT_NEAR(weights.get(1), 1 / (1 + std::exp(-3)), 1e-6);
}

}  // namespace
}  // namespace onepass
