// softmax_topk and topk against the oracle: K, lengths, ties, fills, dtypes, options, and
// how a row is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

std::vector<double> normal(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution(0, 3);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = distribution(random);
  return values;
}

oracle::Row row_of(const Values& x, std::int64_t row, std::int64_t cols) {
  oracle::Row z;
  for (std::int64_t c = 0; c < cols; ++c) z.push_back(x.get(row * cols + c));
  return z;
}

struct Result {
  Values values, indices, lse;
};

Result run(const Values& x, std::int64_t rows, std::int64_t k, TopkOptions options, int threads = 1,
           DType index = DType::i64) {
  Result r{Values(DType::f32, {rows, k}), Values(index, {rows, k}), Values(DType::f32, {rows})};
  options.lse = r.lse.tensor();
  const Status status = softmax_topk(Context::cpu(threads), x.tensor(), r.values.tensor(),
                                     r.indices.tensor(), options);
  EXPECT_TRUE(status.ok()) << status.message();
  return r;
}

void check(const Values& x, std::int64_t rows, std::int64_t cols, std::int64_t k,
           TopkOptions options, int threads = 1) {
  const Result r = run(x, rows, k, options, threads);
  for (std::int64_t row = 0; row < rows; ++row) {
    const oracle::Row z = row_of(x, row, cols);
    std::vector<std::int64_t> expected = oracle::largest(z, k);
    const oracle::Row p = oracle::softmax(z);
    const oracle::Row logs = oracle::log_softmax(z);
    double sum = 0;
    for (const std::int64_t i : expected) sum += p[static_cast<std::size_t>(i)];
    if (!options.sorted) std::sort(expected.begin(), expected.end());
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(expected[static_cast<std::size_t>(i)]);
      ASSERT_EQ(r.indices.get(row * k + i), static_cast<double>(at)) << "row " << row << ", " << i;
      const double got = r.values.get(row * k + i);
      switch (options.values) {
        case TopkValues::probability: EXPECT_NEAR(got, p[at], 2e-6 * p[at]); break;
        case TopkValues::log_probability:
          EXPECT_NEAR(got, logs[at], 4e-6 * std::abs(logs[at]) + 1e-6);
          break;
        case TopkValues::logit: EXPECT_EQ(got, static_cast<float>(z[at])); break;
        case TopkValues::renormalized: EXPECT_NEAR(got, p[at] / sum, 2e-6); break;
      }
    }
    const double lse = oracle::logsumexp(z);
    EXPECT_NEAR(r.lse.get(row), lse, 1e-5 + 1e-6 * std::abs(lse));
  }
}

TEST(TopkTest, MatchesTheOracleOverKAndLength) {
  for (const std::int64_t cols : {1, 2, 7, 64, 1000, 1025, 5000, 20011}) {
    for (const std::int64_t k : {1, 2, 5, 50, 513, 3000}) {
      if (k > cols) continue;
      const Values x(DType::f32, {3, cols}, normal(3 * cols, static_cast<unsigned>(cols + k)));
      check(x, 3, cols, k, {});
    }
    const Values x(DType::f32, {2, cols}, normal(2 * cols, 5));
    check(x, 2, cols, cols, {});  // all of it
  }
}

TEST(TopkTest, EveryKindOfValueSortedAndNot) {
  const Values x(DType::f32, {4, 3001}, normal(4 * 3001, 3));
  for (const TopkValues values : {TopkValues::probability, TopkValues::log_probability,
                                  TopkValues::logit, TopkValues::renormalized}) {
    for (const bool sorted : {true, false})
      check(x, 4, 3001, 40, {.values = values, .sorted = sorted});
  }
}

TEST(TopkTest, EveryDtypeWithItsManyTies) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t k : {1, 10, 700}) {
      const Values x(dtype, {3, 9001}, normal(3 * 9001, 11));
      check(x, 3, 9001, k, {.values = TopkValues::logit});
    }
  }
}

TEST(TopkTest, OrdersThatDefeatAThreshold) {
  constexpr std::int64_t cols = 30000;
  std::vector<double> up(cols);
  for (std::int64_t i = 0; i < cols; ++i)
    up[static_cast<std::size_t>(i)] = 1e-3 * static_cast<double>(i);
  const std::vector<double> down(up.rbegin(), up.rend());
  std::vector<double> one_huge(cols, 0.0);
  one_huge[cols - 3] = 80;
  std::vector<double> clustered(cols, -1.0);  // all of the largest in one slice of the row
  for (std::int64_t i = 5000; i < 5100; ++i)
    clustered[static_cast<std::size_t>(i)] = static_cast<double>(i);
  for (const auto& fill : {up, down, one_huge, clustered, std::vector<double>(cols, 2.5)}) {
    for (const std::int64_t k : {1, 50, 1024}) {
      check(Values(DType::f32, {1, cols}, fill), 1, cols, k, {.values = TopkValues::logit});
    }
  }
}

TEST(TopkTest, AResultDoesNotDependOnHowTheRowIsCut) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Values x(dtype, {1, 70001}, normal(70001, 2));
    const TopkOptions whole{.variant = "cpu_row"};
    const TopkOptions cut{.variant = "cpu_split"};
    const Result one = run(x, 1, 300, whole);
    for (const int threads : {2, 3, 5}) {
      const Result other = run(x, 1, 300, cut, threads);
      EXPECT_EQ(one.values, other.values) << threads;
      EXPECT_EQ(one.indices, other.indices);
      EXPECT_EQ(one.lse, other.lse);
    }
  }
  const Values x(DType::f32, {5, 40000}, normal(5 * 40000, 9));
  check(x, 5, 40000, 64, {}, 2);
}

TEST(TopkTest, MinusInfinityComesLastByIndexAndWeighsNothing) {
  Values x(DType::f32, {2, 10}, std::vector<double>(20, -kInf));
  x.set(3, 1);
  x.set(7, 2);
  const Result r = run(x, 2, 5, {});
  const std::vector<double> first = {7, 3, 0, 1, 2};
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(r.indices.get(i), first[static_cast<std::size_t>(i)]);
    EXPECT_EQ(r.indices.get(5 + i), static_cast<double>(i));  // nothing left: by index
    EXPECT_EQ(r.values.get(5 + i), 0);
    EXPECT_TRUE(i < 2 || r.values.get(i) == 0);
  }
  EXPECT_EQ(r.lse.get(1), -kInf);
}

TEST(TopkTest, ANanMakesItsOwnRowInvalidAndTouchesNoOther) {
  for (const std::int64_t at : {0, 1500, 4999}) {
    Values x(DType::f32, {3, 5000}, normal(15000, 4));
    const Result clean = run(x, 3, 20, {});
    x.set(5000 + at, kNan);
    const Result r = run(x, 3, 20, {});
    for (std::int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(r.indices.get(20 + i), -1);
      EXPECT_TRUE(std::isnan(r.values.get(20 + i)));
      for (const std::int64_t row : {0, 2}) {
        EXPECT_EQ(r.indices.get(20 * row + i), clean.indices.get(20 * row + i));
        EXPECT_EQ(r.values.get(20 * row + i), clean.values.get(20 * row + i));
      }
    }
    EXPECT_TRUE(std::isnan(r.lse.get(1)));
  }
}

TEST(TopkTest, MasksScaleAndTemperature) {
  constexpr std::int64_t rows = 3, cols = 2000, k = 12;
  const Values x(DType::f32, {rows, cols}, normal(rows * cols, 8));
  const Values lengths(DType::i64, {rows}, {2000, 7, 0});
  const Values temperature(DType::f32, {rows}, {0.5, 2, 1});
  Result r = run(x, rows, k,
                 {.values = TopkValues::probability,
                  .scale = 0.5,
                  .temperature = temperature.tensor(),
                  .mask = onepass::lengths(lengths.tensor())});
  for (std::int64_t row = 0; row < rows; ++row) {
    oracle::Transform t{.scale = 0.5, .temperature = temperature.get(row)};
    for (std::int64_t c = 0; c < cols; ++c)
      t.keep.push_back(c < static_cast<std::int64_t>(lengths.get(row)));
    const oracle::Row z = oracle::logits(row_of(x, row, cols), t);
    const auto expected = oracle::largest(z, k);
    const oracle::Row p = oracle::softmax(z);
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = expected[static_cast<std::size_t>(i)];
      EXPECT_EQ(r.indices.get(row * k + i), static_cast<double>(at)) << row << " " << i;
      EXPECT_NEAR(r.values.get(row * k + i), p[static_cast<std::size_t>(at)], 1e-5);
    }
  }
}

TEST(TopkTest, TheTargetsLogProbabilityAndRank) {
  constexpr std::int64_t rows = 6, cols = 5003;
  Values x(DType::bf16, {rows, cols}, normal(rows * cols, 21));  // ties
  x.set(5 * cols + 17, -kInf);
  const Values target(DType::i32, {rows}, {0, 5002, 2500, 1024, 4096, 17});
  for (const int threads : {1, 3}) {
    Values values(DType::f32, {rows, 4});
    Values indices(DType::i32, {rows, 4});
    Values logprob(DType::f32, {rows});
    Values rank(DType::i64, {rows});
    TopkOptions options{.target = target.tensor(),
                        .target_logprob = logprob.tensor(),
                        .target_rank = rank.tensor(),
                        .variant = threads > 1 ? "cpu_split" : "cpu_row"};
    ASSERT_TRUE(
        softmax_topk(Context::cpu(threads), x.tensor(), values.tensor(), indices.tensor(), options)
            .ok());
    for (std::int64_t row = 0; row < rows; ++row) {
      const oracle::Row z = row_of(x, row, cols);
      const auto at = static_cast<std::int64_t>(target.get(row));
      EXPECT_EQ(rank.get(row), static_cast<double>(oracle::rank(z, at))) << row;
      const double expected = oracle::log_softmax(z)[static_cast<std::size_t>(at)];
      if (std::isinf(expected)) {
        EXPECT_EQ(logprob.get(row), expected);
      } else {
        EXPECT_NEAR(logprob.get(row), expected, 1e-5);
      }
    }
  }
}

TEST(TopkTest, LeadingDimensionsAndStrides) {
  const std::vector<double> numbers = normal(2 * 3 * 100, 6);
  const Values x(DType::f32, {2, 3, 100}, numbers);
  Values values(DType::f32, {2, 3, 4});
  Values indices(DType::i32, {2, 3, 4});
  ASSERT_TRUE(topk(Context::cpu(1), x.tensor(), values.tensor(), indices.tensor()).ok());
  Values one_values(DType::f32, {4});
  Values one_indices(DType::i64, {4});
  // Every second element of the last row.
  const auto* data = static_cast<const float*>(x.tensor().data) + 5 * 100;
  ASSERT_TRUE(topk(Context::cpu(1), {data, DType::f32, {50}, {2}}, one_values.tensor(),
                   one_indices.tensor())
                  .ok());
  oracle::Row z;
  for (std::int64_t c = 0; c < 50; ++c) z.push_back(x.get(500 + 2 * c));
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(one_indices.get(i),
              static_cast<double>(oracle::largest(z, 4)[static_cast<std::size_t>(i)]));
    EXPECT_EQ(indices.get(5 * 4 + i), static_cast<double>(oracle::largest(
                                          row_of(x, 5, 100), 4)[static_cast<std::size_t>(i)]));
  }
}

TEST(TopkTest, WhatIsWrongIsNamedWithItsValue) {
  const Values x(DType::f32, {2, 10}, normal(20, 1));
  const auto refused = [&](std::int64_t k, DType index, const TopkOptions& options,
                           std::string_view part) {
    Values values(DType::f32, {2, k});
    Values indices(index, {2, k});
    const Status status =
        softmax_topk(Context::cpu(1), x.tensor(), values.tensor(), indices.tensor(), options);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  refused(0, DType::i64, {}, "K = 0");
  refused(11, DType::i64, {}, "K = 11");
  refused(3, DType::f32, {}, "indices: dtype f32");
  refused(3, DType::i64, {.temperature = -1.0}, "temperature: -1");
  const Values target(DType::i64, {2}, {3, 10});
  refused(3, DType::i64, {.target = target.tensor()}, "target: 10 at row 1");
  Values rank(DType::i64, {2});
  refused(3, DType::i64, {.target_rank = rank.tensor()}, "target: is missing");
  Values values(DType::f32, {2, 3});
  Values fewer(DType::i64, {2, 2});
  const Status status = softmax_topk(Context::cpu(1), x.tensor(), values.tensor(), fewer.tensor());
  EXPECT_NE(status.message().find("indices: 2 columns"), std::string::npos) << status.message();
  EXPECT_EQ(softmax_topk(Context::cuda(), x.tensor(), values.tensor(), rank.tensor()).ok(), false);
}

TEST(TopkTest, NoRowsIsNothingToDo) {
  const Values x(DType::f32, {0, 10});
  Values values(DType::f32, {0, 3});
  Values indices(DType::i64, {0, 3});
  EXPECT_TRUE(softmax_topk(Context::cpu(1), x.tensor(), values.tensor(), indices.tensor()).ok());
}

// Each of the small weights is below half an ulp of the sum, all of them are not.
TEST(TopkTest, RenormalizedByASumOfManySmallWeights) {
  constexpr std::int64_t cols = 50000;
  Values x(DType::f32, {1, cols}, std::vector<double>(cols, -15.9));
  x.set(0, 0);
  const double crumb = std::exp(x.get(1));
  const double expected = 1 / (1 + (cols - 1) * crumb);
  const Result topk = run(x, 1, cols, {.values = TopkValues::renormalized});
  EXPECT_NEAR(topk.values.get(0), expected, 2e-7);
  Values weights(DType::f32, {1, cols}), experts(DType::i32, {1, cols});
  const Status status =
      gate(Context::cpu(), x.tensor(), weights.tensor(), experts.tensor(), {.renormalize = true});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NEAR(weights.get(0), expected, 2e-7);
}

}  // namespace
}  // namespace onepass
