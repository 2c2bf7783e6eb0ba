// Gates on the GPU: scores and answers that lie anywhere, of every type, and scores that all
// want the same place.

#ifdef ONEPASS_HAS_CUDA

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include "core/number.hpp"
#include "onepass/onepass.hpp"
#include "tests/support/array.hpp"

namespace onepass {
namespace {

constexpr std::int64_t kRows = 37;

std::vector<float> normal_scores(std::int64_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

template <class T>
constexpr DType kDType = std::is_same_v<T, F16>    ? DType::f16
                         : std::is_same_v<T, BF16> ? DType::bf16
                                                   : DType::f32;

struct Answer {
  std::vector<float> weights;
  std::vector<std::int64_t> experts;
};

template <class T>
Answer dense_gate(const std::vector<T>& scores, std::int64_t cols, std::int64_t k,
                  const GateOptions& options) {
  const Array<T> x(scores);
  const Array<float> weights(static_cast<std::size_t>(kRows * k));
  const Array<std::int64_t> experts(static_cast<std::size_t>(kRows * k));
  const Status status = gate(Context::cuda(), {x.data(), kDType<T>, {kRows, cols}},
                             Tensor{weights.data(), DType::f32, {kRows, k}},
                             Tensor{experts.data(), DType::i64, {kRows, k}}, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return {weights.values(), experts.values()};
}

class GateGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

// Rows that begin anywhere, columns side by side and not, every second column of the answers, and
// nothing written beside them.
TEST_F(GateGpuTest, AnswersAreTheSameWhereverTheyLie) {
  for (const std::int64_t cols : {8, 64, 100, 256, 576, 1024}) {
    for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const std::int64_t step = way % 2 == 0 ? 1 : 3;
      const std::int64_t begin =
          way / 2;  // so that of a warp's rows another is the first at 16 bytes
      const GateScore score = way / 2 % 2 == 0 ? GateScore::softmax : GateScore::sigmoid;
      const std::int64_t k = cols > 256 ? 16 : 5;
      const GateOptions options{.score = score, .renormalize = cols == 64};
      const std::vector<float> scores = normal_scores(kRows * cols);
      const Answer expected = dense_gate(scores, cols, k, options);

      const std::int64_t wide = cols * step + 3;
      const std::int64_t room = 2 * k + 1;
      std::vector<float> spread(static_cast<std::size_t>(begin + kRows * wide), NAN);
      for (std::int64_t i = 0; i < kRows * cols; ++i) {
        spread[begin + i / cols * wide + i % cols * step] = scores[i];
      }
      const Array<float> x(spread);
      const Array<float> weights(static_cast<std::size_t>(kRows * room));
      const Array<std::int32_t> experts(static_cast<std::size_t>(kRows * room));
      weights.poison();
      experts.poison();
      const Status status =
          gate(Context::cuda(), {x.data() + begin, DType::f32, {kRows, cols}, {wide, step}},
               Tensor{weights.data(), DType::f32, {kRows, k}, {room, 2}},
               Tensor{experts.data(), DType::i32, {kRows, k}, {room, 2}}, options);
      ASSERT_TRUE(status.ok()) << status.message();
      const auto found = weights.values();
      const auto which = experts.values();
      for (std::int64_t i = 0; i < kRows * room; ++i) {
        const std::int64_t place = i % room;
        if (place % 2 == 0 && place < 2 * k) {
          const std::int64_t at = i / room * k + place / 2;
          EXPECT_NEAR(found[i], expected.weights[at], 1e-6F) << cols << " " << at;
          EXPECT_EQ(which[i], expected.experts[at]) << cols << " " << at;
        } else {
          EXPECT_TRUE(std::isnan(found[i])) << cols << " " << i;
          EXPECT_EQ(which[i], -1) << cols << " " << i;
        }
      }
    }
  }
}

TEST_F(GateGpuTest, MinusZeroIsZero) {
  for (const std::int64_t cols : {8, 31, 64, 250, 256, 1000}) {
    std::vector<float> scores(static_cast<std::size_t>(kRows * cols));
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = i % 3 == 0 ? -0.F : 0.F;
    const std::int64_t k = cols == 31 ? 16 : 5;
    const Answer answer = dense_gate(scores, cols, k, {.score = GateScore::sigmoid});
    for (std::int64_t i = 0; i < kRows * k; ++i) {
      EXPECT_EQ(answer.experts[i], i % k) << cols << " " << i;
      EXPECT_EQ(answer.weights[i], 0.5F) << cols << " " << i;
    }
  }
}

// A scale over a sum of tiny weights is no float.
TEST_F(GateGpuTest, TinyWeightsAreRenormalized) {
  constexpr std::int64_t cols = 64, k = 2;
  const std::vector<float> scores(kRows * cols, -86.F);
  const Answer answer =
      dense_gate(scores, cols, k, {.score = GateScore::sigmoid, .renormalize = true, .scale = 100});
  for (const float weight : answer.weights) EXPECT_NEAR(weight, 50, 1e-3);
}

TEST_F(GateGpuTest, WeightsAreRoundedToTheirType) {
  constexpr std::int64_t cols = 256, k = 8, count = kRows * k;
  const std::vector<float> scores = normal_scores(kRows * cols);
  const Answer expected = dense_gate(scores, cols, k, {});
  const Array<float> x(scores);
  const Array<std::int32_t> experts(count);
  const auto run = [&](void* weights, DType dtype) {
    experts.poison();
    const Status status =
        gate(Context::cuda(), {x.data(), DType::f32, {kRows, cols}},
             Tensor{weights, dtype, {kRows, k}}, Tensor{experts.data(), DType::i32, {kRows, k}});
    EXPECT_TRUE(status.ok()) << status.message();
    const auto which = experts.values();
    EXPECT_TRUE(std::equal(which.begin(), which.end(), expected.experts.begin())) << name(dtype);
  };
  const Array<F16> halves(count);
  const Array<BF16> brains(count);
  const Array<double> doubles(count);
  run(halves.data(), DType::f16);
  run(brains.data(), DType::bf16);
  run(doubles.data(), DType::f64);
  const auto half = halves.values();
  const auto brain = brains.values();
  const auto exact = doubles.values();
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(half[i].bits, to_f16(expected.weights[i]).bits);
    EXPECT_EQ(brain[i].bits, to_bf16(expected.weights[i]).bits);
    EXPECT_NEAR(exact[i], expected.weights[i], 1e-6);
  }
}

// From a few that are alike, whose keys have to be told apart by their columns, to more than a
// row has room for.
template <class T>
void expect_lower_experts(int alike) {
  constexpr std::int64_t cols = 256, k = 8;
  std::vector<T> scores(kRows * cols);
  for (std::int64_t i = 0; i < kRows * cols; ++i) {
    // In each row other columns, over all lanes or a few.
    const std::int64_t c = (i % cols * 7 + i / cols * 31) % cols;
    scores[i] = store_as<T>(c < alike ? 3.0F : -1.0F - static_cast<float>(c) / 64);
  }
  const Answer found = dense_gate(scores, cols, k, {});
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<std::int64_t> order(cols);
    for (std::int64_t c = 0; c < cols; ++c) order[c] = c;
    const T* of = scores.data() + row * cols;
    std::stable_sort(order.begin(), order.end(), [of](std::int64_t a, std::int64_t b) {
      return load_as<float>(of[a]) > load_as<float>(of[b]);
    });
    for (std::int64_t i = 0; i < k; ++i) {
      EXPECT_EQ(found.experts[row * k + i], order[i])
          << name(kDType<T>) << ", " << alike << " alike, row " << row;
    }
  }
}

TEST_F(GateGpuTest, TiesGoToTheLowerExpert) {
  for (const int alike : {2, 9, 13, 30, 48, 49, 100, 256}) {
    expect_lower_experts<float>(alike);
    expect_lower_experts<F16>(alike);
    expect_lower_experts<BF16>(alike);
  }
}

}  // namespace
}  // namespace onepass

#endif  // ONEPASS_HAS_CUDA
