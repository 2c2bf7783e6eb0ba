// cross_entropy_with_gradient: what two calls give, in one.
#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "onepass/onepass.hpp"

namespace onepass {
namespace {

constexpr std::int64_t kRows = 37;
constexpr std::int64_t kCols = 501;

class WithGradientTest : public testing::Test {
 protected:
  WithGradientTest() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 4);
    for (float& value : x_) value = normal(random);
    for (std::int64_t r = 0; r < kRows; ++r) {
      target_[static_cast<std::size_t>(r)] = r % 5 == 0 ? -100 : r * 13 % kCols;
    }
  }

  using Floats = std::vector<float>;
  static Tensor matrix(Floats& values) { return {values.data(), DType::f32, {kRows, kCols}}; }
  static Tensor per_row(Floats& values) { return {values.data(), DType::f32, {kRows}}; }
  static Tensor one(float& value) { return {&value, DType::f32, {}}; }
  Tensor target() { return {target_.data(), DType::i64, {kRows}}; }

  void refused(const Status& status, std::string_view part, Code code = Code::invalid_argument) {
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }

  const Context cpu_ = Context::cpu(2);
  Floats x_ = Floats(kRows * kCols), dx_ = Floats(kRows * kCols, -7), loss_ = Floats(kRows, -7);
  std::vector<std::int64_t> target_ = std::vector<std::int64_t>(kRows);
};

TEST_F(WithGradientTest, TheBitsOfTwoCalls) {
  const CrossEntropyOptions options{.label_smoothing = 0.1, .z_loss = 1e-3};
  Floats loss(kRows);
  Floats lse(kRows);
  Floats dx(kRows * kCols);
  Floats ones(kRows, 1);
  CrossEntropyOptions forward = options;
  forward.lse = per_row(lse);
  ASSERT_TRUE(cross_entropy(cpu_, matrix(x_), target(), per_row(loss), forward).ok());
  ASSERT_TRUE(
      cross_entropy_backward(cpu_, matrix(x_), target(), {}, per_row(ones), matrix(dx), options)
          .ok());
  Floats lse_again(kRows);
  forward.lse = per_row(lse_again);
  ASSERT_TRUE(
      cross_entropy_with_gradient(cpu_, matrix(x_), target(), per_row(loss_), matrix(dx_), forward)
          .ok());
  EXPECT_EQ(loss_, loss);
  EXPECT_EQ(dx_, dx);
  EXPECT_EQ(lse_again, lse);
  // And over the logits.
  ASSERT_TRUE(
      cross_entropy_with_gradient(cpu_, matrix(x_), target(), per_row(loss_), matrix(x_), options)
          .ok());
  EXPECT_EQ(loss_, loss);
  EXPECT_EQ(x_, dx);
}

TEST_F(WithGradientTest, ReducedAsTwoCalls) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    const CrossEntropyOptions options{.reduction = reduction};
    float loss = 0;
    float again = 0;
    float gradient = 1;
    Floats dx(kRows * kCols);
    ASSERT_TRUE(cross_entropy(cpu_, matrix(x_), target(), one(loss), options).ok());
    ASSERT_TRUE(
        cross_entropy_backward(cpu_, matrix(x_), target(), {}, one(gradient), matrix(dx), options)
            .ok());
    ASSERT_TRUE(
        cross_entropy_with_gradient(cpu_, matrix(x_), target(), one(again), matrix(dx_), options)
            .ok());
    EXPECT_EQ(again, loss);
    EXPECT_EQ(dx_, dx);
  }
}

TEST_F(WithGradientTest, WhatIsWrongIsNamedAndNothingIsWritten) {
  const auto run = [&](const Tensor& loss, const Tensor& dx,
                       const CrossEntropyOptions& options = {}) {
    return cross_entropy_with_gradient(cpu_, matrix(x_), target(), loss, dx, options);
  };
  refused(run({}, matrix(dx_)), "loss");
  refused(run(per_row(loss_), {}), "dx");
  refused(run(Tensor{loss_.data(), DType::f32, {kRows - 1}}, matrix(dx_)), "loss");
  refused(run(per_row(loss_), Tensor{dx_.data(), DType::f32, {kRows, kCols - 1}}), "dx");
  refused(run(Tensor{loss_.data(), DType::i32, {kRows}}, matrix(dx_)), "loss");
  refused(run(per_row(loss_), matrix(dx_), {.reduction = Reduction::mean}), "one element");
  refused(run(Tensor{x_.data(), DType::f32, {kRows}}, matrix(dx_)), "loss");   // over the logits
  refused(run(Tensor{dx_.data(), DType::f32, {kRows}}, matrix(dx_)), "loss");  // over the gradient
  refused(run(per_row(loss_), matrix(dx_), {.lse = per_row(loss_)}), "lse");   // over the loss
  target_[3] = kCols;
  refused(run(per_row(loss_), matrix(dx_)), "target");
  EXPECT_EQ(loss_, Floats(kRows, -7));
  EXPECT_EQ(dx_, Floats(kRows * kCols, -7));
}

}  // namespace
}  // namespace onepass
