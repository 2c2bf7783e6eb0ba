// Choosing from rows on the GPU: the same answer always, in graphs, in any batch and by any launch;
// draws that follow their distribution; rows whose own options cannot be.

#ifdef ONEPASS_HAS_CUDA

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"
#include "runtime/gpu.hpp"
#include "tests/support/array.hpp"
#include "tests/support/graph.hpp"

namespace onepass {
namespace {

std::vector<float> normal_logits(std::int64_t count, float sigma = 2) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

class ChooseGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

// A topk of its own arrays.
class Topk {
 public:
  Topk(std::int64_t rows, std::int64_t cols, std::int64_t k)
      : Topk(rows, cols, k, normal_logits(rows * cols)) {}
  Topk(std::int64_t rows, std::int64_t cols, std::int64_t k, const std::vector<float>& logits)
      : rows_(rows),
        cols_(cols),
        k_(k),
        x_(logits),
        values_(static_cast<std::size_t>(rows * k)),
        indices_(static_cast<std::size_t>(rows * k)) {}

  Status run(const Context& context, const TopkOptions& options = {}) const {
    return softmax_topk(context, {x_.data(), DType::f32, {rows_, cols_}},
                        Tensor{values_.data(), DType::f32, {rows_, k_}},
                        Tensor{indices_.data(), DType::i32, {rows_, k_}}, options);
  }
  void poison() const {
    values_.poison();
    indices_.poison();
  }
  std::pair<std::vector<float>, std::vector<std::int32_t>> result() const {
    return {values_.values(), indices_.values()};
  }

 private:
  std::int64_t rows_, cols_, k_;
  Array<float> x_, values_;
  Array<std::int32_t> indices_;
};

// One of each kernel: lanes, a warp, several, small blocks, large ones, clusters that guess and
// others, the grid, the sort.
const std::vector<std::array<std::int64_t, 3>> kShapes = {
    {1000, 999, 5}, {1000, 3001, 60}, {200, 32000, 128}, {600, 3000, 200}, {200, 32000, 200},
    {3, 50257, 50}, {20, 30000, 100}, {3, 50257, 200},   {1, 5000000, 20}, {2, 9000, 3000}};

TEST_F(ChooseGpuTest, RepeatsAreTheSameBits) {
  for (const auto& [rows, cols, k] : kShapes) {
    const Topk op(rows, cols, k);
    ASSERT_TRUE(op.run(Context::cuda()).ok());
    const auto first = op.result();
    for (int batch = 0; batch < 4; ++batch) {
      op.poison();
      for (int i = 0; i < 25; ++i) ASSERT_TRUE(op.run(Context::cuda()).ok());
      EXPECT_EQ(op.result(), first) << rows << "x" << cols;
    }
  }
}

TEST_F(ChooseGpuTest, EveryLaunchChoosesTheSame) {
  const Topk op(2, 70001, 40);
  ASSERT_TRUE(op.run(Context::cuda()).ok());
  const auto expected = op.result().second;
  for (const char* variant :
       {"gpu_block", "gpu_cluster", "gpu_grid", "gpu_sort", "gpu_block:1:128", "gpu_cluster:4:256",
        "gpu_cluster:16:512", "gpu_grid:9:256", "gpu_guess", "gpu_guess:16:256", "gpu_stream:1:32",
        "gpu_stream:1:96", "gpu_stream:1:224", "gpu_stream:2:64", "gpu_stream:2:512",
        "gpu_stream:4:256"}) {
    op.poison();
    const Status status = op.run(Context::cuda(), {.variant = variant});
    if (status.code() == Code::unsupported) continue;  // a GPU without clusters
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(op.result().second, expected) << variant;
  }
}

// Of elements alike the first are chosen, whatever their zeros' signs.
TEST_F(ChooseGpuTest, MinusZeroIsZero) {
  for (const std::int64_t cols : {31, 200, 1000, 5000, 30011, 200000}) {
    std::vector<float> logits(static_cast<std::size_t>(cols));
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i % 3 == 0 ? -0.F : 0.F;
    for (const std::int64_t k : {1, 7, 16, 31, 60, 128, 1000, 3000}) {
      if (k > cols) continue;
      const Topk op(1, cols, k, logits);
      ASSERT_TRUE(op.run(Context::cuda()).ok());
      const std::vector<std::int32_t> found = op.result().second;
      for (std::int64_t i = 0; i < k; ++i) ASSERT_EQ(found[i], i) << cols << ", k " << k;
    }
  }
}

// The K largest all of one block, which sends fewer; and more elements alike than a
// block has room for.
TEST_F(ChooseGpuTest, AWrongGuessIsNoticed) {
  constexpr std::int64_t cols = 30011;
  std::vector<float> together = normal_logits(cols);
  for (std::int64_t c = 0; c < cols; ++c) {  // 128 elements of each block, in turns
    if (c / 128 % 16 == 5) together[static_cast<std::size_t>(c)] += 20;
  }
  const std::vector<float> alike(cols, 1.0F);
  for (const std::vector<float>& logits : {together, alike}) {
    for (const std::int64_t k : {1, 2, 17, 50, 64, 65, 128}) {
      const Topk op(1, cols, k, logits);
      ASSERT_TRUE(op.run(Context::cuda(), {.variant = "gpu_sort"}).ok());
      const auto expected = op.result().second;
      for (const auto& [variant, most] :
           {std::pair("gpu_guess:16:256", 64), {"gpu_guess:4:256", 128}}) {
        if (k > most) continue;
        op.poison();
        const Status status = op.run(Context::cuda(), {.variant = variant});
        if (status.code() == Code::unsupported) continue;  // a GPU without clusters
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(op.result().second, expected) << variant << " k " << k;
      }
    }
  }
}

// Logits whose z is −inf though they are not, in all of a block's part and at its edge, or
// everywhere; a NaN beside +inf.
TEST_F(ChooseGpuTest, ExtremesOfOneBlockAreThoseOfTheRow) {
  constexpr std::int64_t cols = 30011, k = 50;
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> masked = normal_logits(cols);
  for (std::int64_t c = 0; c < cols; ++c) {
    if (c / 128 % 16 == 0 || c == cols - 1) {
      masked[static_cast<std::size_t>(c)] = std::numeric_limits<float>::lowest();
    }
  }
  std::vector<float> broken = normal_logits(cols);
  broken[0] = inf;
  broken[5000] = std::nanf("");
  const std::vector<float> none(cols, std::numeric_limits<float>::lowest());
  std::vector<float> lost = normal_logits(cols);  // and no two alike, so that a guess is right
  for (float& x : lost) x = -2.9e38F + 3e36F * x;
  for (const std::vector<float>& logits : {masked, broken, none, lost}) {
    const Topk op(1, cols, k, logits);
    const Array<float> lse(1);
    const auto run = [&](const char* variant) {
      op.poison();
      return op.run(
          Context::cuda(),
          {.temperature = 0.7, .lse = Tensor{lse.data(), DType::f32, {1}}, .variant = variant});
    };
    ASSERT_TRUE(run("gpu_block").ok());
    const auto expected = op.result();
    const float expected_lse = lse.values()[0];
    for (const char* variant : {"gpu_guess:16:256", "gpu_guess:4:256"}) {
      const Status status = run(variant);
      if (status.code() == Code::unsupported) return;  // a GPU without clusters
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(op.result().second, expected.second) << variant;
      for (std::size_t i = 0; i < k; ++i) {
        EXPECT_EQ(std::isnan(op.result().first[i]), std::isnan(expected.first[i])) << variant << i;
      }
      EXPECT_EQ(std::isnan(lse.values()[0]), std::isnan(expected_lse)) << variant;
    }
  }
}

TEST_F(ChooseGpuTest, AGraphReplaysTheSameBits) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const Context context = Context::cuda(stream);
  for (const auto& [rows, cols, k] : kShapes) {
    const Topk op(rows, cols, k);
    ASSERT_TRUE(op.run(context).ok());  // its workspace is there from now on
    const auto first = op.result();
    test::replay_in_graph(
        stream, 50, [&] { return op.run(context); }, [&] { op.poison(); });
    EXPECT_EQ(op.result(), first) << rows << "x" << cols;
  }
  cudaStreamDestroy(stream);
}

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

TEST_F(ChooseGpuTest, ARowsDrawDoesNotDependOnTheBatchOrTheLaunch) {
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

TEST_F(ChooseGpuTest, DrawsAreTheCpus) {
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
TEST_F(ChooseGpuTest, TwoTokensMayBeClose) {
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

TEST_F(ChooseGpuTest, TheFirstTokensMayBeFarBelow) {
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

TEST_F(ChooseGpuTest, FollowsTheDistributionThatEachFilterLeaves) {
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
TEST_F(ChooseGpuTest, ARowsOwnBadOptionMarksThatRowAlone) {
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
