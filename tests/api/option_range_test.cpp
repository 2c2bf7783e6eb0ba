// Options at the edge of what their types hold: answered right, or refused by name,
// never a wrong number.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "onepass/onepass.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

Values row(DType dtype) { return Values(dtype, {1, 3}, {0.5, -1, 2}); }

Status run(DType dtype, const SoftmaxOptions& options, Values& y) {
  const Values x = row(dtype);
  y = Values(dtype, {1, 3});
  return softmax(Context::cpu(1), x.tensor(), y.tensor(), options);
}

void expect_refused(const Status& status, const std::string& argument, const std::string& value) {
  ASSERT_EQ(status.code(), Code::invalid_argument) << argument << " " << value;
  EXPECT_EQ(status.message().rfind(argument + ":", 0), 0U) << status.message();
  EXPECT_NE(status.message().find(value), std::string::npos) << status.message();
}

TEST(OptionRangeTest, WhatFloat32CannotHoldIsRefusedByName) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Values y;
    for (const double value : {1e39, 1e-46, 1e-39}) {
      expect_refused(run(dtype, {.softcap = value}, y), "softcap", "1e");
      EXPECT_TRUE(std::isnan(y.get(0))) << "an output was touched";
    }
    expect_refused(run(dtype, {.temperature = 1e-39}, y), "temperature", "1e-39");
    expect_refused(run(dtype, {.temperature = 1e40}, y), "temperature", "1e+40");
    expect_refused(run(dtype, {.scale = 1e300}, y), "scale", "1e+300");
    expect_refused(run(dtype, {.scale = -1e-45}, y), "scale", "-1e-45");
    expect_refused(run(dtype, {.scale = 1e30, .softcap = 1e-30}, y), "softcap", "1e-30");
    expect_refused(run(dtype, {.temperature = 1e-30, .softcap = 1e20}, y), "temperature", "1e-30");
  }
}

TEST(OptionRangeTest, ValuesOfRowsAreLookedAtToo) {
  Values y;
  const Values small(DType::f64, {1}, {1e-39}), large(DType::f64, {1}, {1e300});
  expect_refused(run(DType::f32, {.temperature = small.tensor()}, y), "temperature", "1e-39");
  expect_refused(run(DType::f32, {.scale = large.tensor()}, y), "scale", "1e+300");
  EXPECT_TRUE(run(DType::f32, {.scale = large.tensor(), .temperature = large.tensor()}, y).ok());
}

// Two factors that are one before they are rounded.
TEST(OptionRangeTest, OnlyWhatTheyMakeTogetherHasToFit) {
  Values plain, y;
  ASSERT_TRUE(run(DType::f32, {}, plain).ok());
  ASSERT_TRUE(run(DType::f32, {.scale = 1e300, .temperature = 1e300}, y).ok());
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(y.get(i), plain.get(i));
  ASSERT_TRUE(run(DType::f32, {.scale = 0}, y).ok());
  EXPECT_NEAR(y.get(0), 1.0 / 3, 1e-7);
}

TEST(OptionRangeTest, Float64HoldsMore) {
  Values plain, y;
  ASSERT_TRUE(run(DType::f64, {}, plain).ok());
  ASSERT_TRUE(run(DType::f64, {.softcap = 1e39}, y).ok());
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(y.get(i), plain.get(i), 1e-15);
  ASSERT_TRUE(run(DType::f64, {.temperature = 1e-39}, y).ok());
  EXPECT_EQ(y.get(2), 1);
  expect_refused(run(DType::f64, {.softcap = 1e-310}, y), "softcap", "1e-310");
}

TEST(OptionRangeTest, OpsThatSelect) {
  const Values x = row(DType::f32);
  Values values(DType::f32, {1, 2}), indices(DType::i64, {1, 2}), token(DType::i64, {1});
  const Context context = Context::cpu(1);
  expect_refused(topk(context, x.tensor(), values.tensor(), indices.tensor(), {.softcap = 1e39}),
                 "softcap", "1e+39");
  expect_refused(sample(context, x.tensor(), token.tensor(), {.temperature = 1e-39}), "temperature",
                 "1e-39");
  const Values small(DType::f64, {1}, {1e-39});
  expect_refused(sample(context, x.tensor(), token.tensor(), {.temperature = small.tensor()}),
                 "temperature", "1e-39");
  expect_refused(sample(context, x.tensor(), token.tensor(), {.scale = 1e300}), "scale", "1e+300");
  EXPECT_TRUE(sample(context, x.tensor(), token.tensor(), {.temperature = 0}).ok());
  expect_refused(gate(context, x.tensor(), values.tensor(), indices.tensor(), {.scale = 1e300}),
                 "scale", "1e+300");
}

// 2^53 + 1 is no double.
TEST(OptionRangeTest, TargetsAreComparedAsIntegers) {
  constexpr std::int64_t kBig = std::int64_t{1} << 53;
  const Values x(DType::f32, {3, 4}, std::vector<double>(12, 0.5));
  const std::int64_t targets[] = {1, 2, kBig + 1};
  Values loss(DType::f32, {3}), dx(DType::f32, {3, 4});
  const ConstTensor target(targets, DType::i64, {3});
  const CrossEntropyOptions options{.ignore_index = kBig};
  expect_refused(cross_entropy(Context::cpu(1), x.tensor(), target, loss.tensor(), options),
                 "target", std::to_string(kBig + 1));
  const CrossEntropyOptions ignoring{.ignore_index = kBig + 1};
  ASSERT_TRUE(cross_entropy(Context::cpu(1), x.tensor(), target, loss.tensor(), ignoring).ok());
  EXPECT_EQ(loss.get(2), 0);
  EXPECT_NEAR(loss.get(0), std::log(4.0), 1e-6);
  EXPECT_TRUE(cross_entropy_with_gradient(Context::cpu(1), x.tensor(), target, loss.tensor(),
                                          dx.tensor(), ignoring)
                  .ok());
}

TEST(OptionRangeTest, WithASmoothingOfOneAHiddenTargetHasNoSay) {
  const Values x(DType::f32, {1, 4}, {0.5, -1, 2, 0});
  const std::uint8_t keep[] = {1, 1, 0, 1};
  const std::int64_t targets[] = {2};
  Values loss(DType::f32, {1}), dx(DType::f32, {1, 4});
  const CrossEntropyOptions options{.mask = boolean({keep, DType::u8, {1, 4}}),
                                    .label_smoothing = 1};
  const Status status = cross_entropy_with_gradient(
      Context::cpu(1), x.tensor(), {targets, DType::i64, {1}}, loss.tensor(), dx.tensor(), options);
  ASSERT_TRUE(status.ok()) << status.message();
  const double lse = std::log(std::exp(0.5) + std::exp(-1) + 1);
  EXPECT_NEAR(loss.get(0), lse - (0.5 - 1 + 0) / 3, 1e-6);
  EXPECT_EQ(dx.get(2), 0);
  EXPECT_NEAR(dx.get(0), std::exp(0.5 - lse) - 1.0 / 3, 1e-6);
}

}  // namespace
}  // namespace onepass
