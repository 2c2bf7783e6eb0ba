// Draws on the GPU: the same in any batch and by any launch, of the distribution that each filter
// leaves; rows whose own options cannot be.

#ifdef ONEPASS_HAS_CUDA

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"
#include "tests/ops/select/select_gpu.hpp"
#include "tests/support/array.hpp"

namespace onepass {
namespace {

std::vector<std::int64_t> draw(const float* x, std::int64_t rows, std::int64_t cols,
                               const SampleOptions& options) {
  const Array<std::int64_t> token(static_cast<std::size_t>(rows));
  token.poison();
  const Status status = sample(Context::cuda(), {x, DType::f32, {rows, cols}},
                               Tensor{token.data(), DType::i64, {rows}}, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return token.values();
}

struct Filter {
  std::int64_t top_k;
  double top_p, min_p, temperature;
};
constexpr Filter kFilters[] = {{0, 1, 0, 1},        {0, 1, 0, 0},      {40, 1, 0, 1},
                               {40, 0.9, 0, 0.7},   {0, 0.9, 0, 1},    {0, 0.5, 0, 1},
                               {0, 1, 0.05, 1},     {0, 0.8, 0.01, 2}, {5000, 0.99, 0, 1},
                               {3000, 1, 0.001, 3}, {100, 1, 0.2, 1},  {128, 0.95, 0.05, 2}};

TEST_F(SelectGpuTest, ARowsDrawDoesNotDependOnTheBatchOrTheLaunch) {
  constexpr std::int64_t rows = 7, cols = 30011;
  const Array<float> x(normal_logits(rows * cols));
  const Array<std::int64_t> seeds(std::vector<std::int64_t>{11, 12, 13, 14, 15, 16, 17});
  for (const Filter& f : kFilters) {
    SampleOptions options{.temperature = f.temperature,
                          .top_k = f.top_k,
                          .top_p = f.top_p,
                          .min_p = f.min_p,
                          .seed = Tensor{seeds.data(), DType::i64, {rows}},
                          .offset = 5};
    const auto together = draw(x.data(), rows, cols, options);
    const bool by_top_k = f.temperature == 0 || (f.top_k > 0 && f.top_k <= 128);
    for (const std::string_view variant :
         {"", "gpu_block", "gpu_cluster", "gpu_grid", "gpu_guess", "gpu_stream:1:32",
          "gpu_stream:1:160", "gpu_stream:2:256"}) {
      if ((variant.starts_with("gpu_stream") || variant == "gpu_guess") && !by_top_k) continue;
      options.variant = variant;
      for (std::int64_t r = 0; r < rows; ++r) {
        options.seed = Tensor{seeds.data() + r, DType::i64, {1}};
        if (variant == "gpu_cluster" && r > 1) break;
        const auto alone = draw(x.data() + r * cols, 1, cols, options);
        EXPECT_EQ(alone[0], together[static_cast<std::size_t>(r)])
            << variant << ", row " << r << ", top_k " << f.top_k << " top_p " << f.top_p;
      }
    }
  }
}

TEST_F(SelectGpuTest, DrawsAreTheCpus) {
  constexpr std::int64_t rows = 400, cols = 2003;
  const std::vector<float> logits = normal_logits(rows * cols);
  const Array<float> x(logits);
  for (const Filter& f : kFilters) {
    const SampleOptions options{.temperature = f.temperature,
                                .top_k = f.top_k,
                                .top_p = f.top_p,
                                .min_p = f.min_p,
                                .seed = 3};
    std::vector<std::int64_t> expected(rows);
    ASSERT_TRUE(sample(Context::cpu(2), {logits.data(), DType::f32, {rows, cols}},
                       Tensor{expected.data(), DType::i64, {rows}}, options)
                    .ok());
    const auto got = draw(x.data(), rows, cols, options);
    int others = 0;  // two that run as fast as their rounding may end in either order
    for (std::size_t r = 0; r < expected.size(); ++r) others += got[r] != expected[r] ? 1 : 0;
    EXPECT_LE(others, 1) << "top_k " << f.top_k << " top_p " << f.top_p << " min_p " << f.min_p;
  }
}

// Logits count from the first ones, until it turns out that the others are far from these.
// Some rows in a hundred thousand have two tokens that only exact noise tells apart.
TEST_F(SelectGpuTest, TwoTokensMayBeClose) {
  constexpr std::int64_t rows = 300000, cols = 40;
  const std::vector<float> logits(rows * cols, 0.0F);
  const SampleOptions options{.top_k = cols, .seed = 9};
  std::vector<std::int64_t> expected(rows);
  ASSERT_TRUE(sample(Context::cpu(2), {logits.data(), DType::f32, {rows, cols}},
                     Tensor{expected.data(), DType::i64, {rows}}, options)
                  .ok());
  const Array<float> x(logits);
  const auto got = draw(x.data(), rows, cols, options);
  int others = 0;
  for (std::size_t r = 0; r < expected.size(); ++r) others += got[r] != expected[r] ? 1 : 0;
  EXPECT_LE(others, 1);
}

TEST_F(SelectGpuTest, TheFirstTokensMayBeFarBelow) {
  constexpr std::int64_t rows = 200, cols = 3001;
  for (const float low : {-1e4F, -1e9F, -3e38F}) {
    std::vector<float> logits = normal_logits(rows * cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      if (i % cols < 40) logits[static_cast<std::size_t>(i)] = low;
    }
    std::vector<std::int64_t> expected(rows);
    ASSERT_TRUE(sample(Context::cpu(2), {logits.data(), DType::f32, {rows, cols}},
                       Tensor{expected.data(), DType::i64, {rows}}, {.seed = 4})
                    .ok());
    const Array<float> x(logits);
    const auto got = draw(x.data(), rows, cols, {.seed = 4});
    int others = 0;
    for (std::size_t r = 0; r < expected.size(); ++r) others += got[r] != expected[r] ? 1 : 0;
    EXPECT_LE(others, 1) << low;
  }
}

TEST_F(SelectGpuTest, FollowsTheDistributionThatEachFilterLeaves) {
  constexpr std::int64_t rows = 20000, cols = 24;
  const std::vector<float> one = normal_logits(cols, 1.5F);
  std::vector<float> all;
  for (std::int64_t r = 0; r < rows; ++r) all.insert(all.end(), one.begin(), one.end());
  const Array<float> x(all);
  std::int64_t seed = 100;
  for (const std::int64_t top_k : {0, 1, 5, 12}) {
    for (const double top_p : {1.0, 0.9, 0.4}) {
      for (const double min_p : {0.0, 0.1}) {
        const oracle::Row z(one.begin(), one.end());
        const oracle::Row p = oracle::filtered(z, top_k, top_p, min_p);
        const auto tokens = draw(x.data(), rows, cols,
                                 {.top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = ++seed});
        std::vector<double> seen(cols, 0);
        for (const std::int64_t t : tokens) {
          ASSERT_GE(t, 0);
          ASSERT_LT(t, cols);
          seen[static_cast<std::size_t>(t)] += 1;
        }
        double statistic = 0;
        double freedom = -1;
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double expected = p[i] * static_cast<double>(rows);
          if (p[i] == 0) {
            EXPECT_EQ(seen[i], 0);
          } else if (expected >= 8) {
            statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
            freedom += 1;
          }
        }
        EXPECT_LE(statistic, freedom + 6 * std::sqrt(2 * std::max(freedom, 1.0)))
            << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
      }
    }
  }
}

// By blocks, which take a top_k of each row, too, and by warps and clusters that guess, which
// take one for all.
TEST_F(SelectGpuTest, ARowsOwnBadOptionMarksThatRowAlone) {
  constexpr std::int64_t rows = 6, cols = 5000;
  const Array<float> x(normal_logits(rows * cols));
  const float nan = std::nanf("");
  const Array<float> temperature(std::vector<float>{1, nan, 1, -1, 0, 1});
  const Array<float> top_p(std::vector<float>{0.9F, 0.9F, 1.5F, 0.9F, 0.9F, 0.9F});
  const Array<std::int64_t> top_k(std::vector<std::int64_t>{50, 50, 50, 50, 50, -1});
  for (const char* variant :
       {"", "gpu_stream:1:32", "gpu_stream:1:64", "gpu_stream:4:64", "gpu_guess"}) {
    const bool own_k = std::string_view(variant).empty();
    const Array<std::uint8_t> valid(rows);
    const Array<float> logprob(rows);
    SampleOptions options{.temperature = Tensor{temperature.data(), DType::f32, {rows}},
                          .top_k = 50,
                          .top_p = Tensor{top_p.data(), DType::f32, {rows}},
                          .seed = 5,
                          .logprob = Tensor{logprob.data(), DType::f32, {rows}},
                          .valid = Tensor{valid.data(), DType::u8, {rows}},
                          .variant = variant};
    if (own_k) options.top_k = Tensor{top_k.data(), DType::i64, {rows}};
    const auto tokens = draw(x.data(), rows, cols, options);
    const std::uint8_t last = own_k ? 0 : 1;
    EXPECT_EQ(valid.values(), (std::vector<std::uint8_t>{1, 0, 0, 0, 1, last})) << variant;
    for (const std::size_t r : {1, 2, 3}) EXPECT_EQ(tokens[r], -1) << variant;
    EXPECT_EQ(tokens[5] == -1, own_k);
    EXPECT_GE(tokens[0], 0);
    EXPECT_LT(logprob.values()[0], 0);

    const Array<float> values(rows * 4);
    const Array<std::int64_t> indices(rows * 4);
    const Array<std::int64_t> target(std::vector<std::int64_t>{0, 1, cols, -7, 4, 5});
    const Array<std::int64_t> rank(rows);
    ASSERT_TRUE(softmax_topk(Context::cuda(), {x.data(), DType::f32, {rows, cols}},
                             Tensor{values.data(), DType::f32, {rows, 4}},
                             Tensor{indices.data(), DType::i64, {rows, 4}},
                             {.temperature = Tensor{temperature.data(), DType::f32, {rows}},
                              .target = Tensor{target.data(), DType::i64, {rows}},
                              .target_rank = Tensor{rank.data(), DType::i64, {rows}},
                              .variant = variant})
                    .ok());
    const auto ranks = rank.values();
    const auto chosen = indices.values();
    for (std::size_t r = 0; r < rows; ++r) {
      const bool bad_temperature = r == 1 || r == 3 || r == 4;  // 0 is none of a topk's
      EXPECT_EQ(chosen[4 * r] == -1, bad_temperature) << variant << " " << r;
      EXPECT_EQ(ranks[r] == -1, bad_temperature || r == 2) << variant << " " << r;
    }
  }
}

}  // namespace
}  // namespace onepass

#endif  // ONEPASS_HAS_CUDA
