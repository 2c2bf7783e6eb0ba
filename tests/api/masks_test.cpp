// Masks, through the public API: what they leave of a row, and what they hide.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "onepass/onepass.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

// What no weight, no log-weight and no lse at all look like.
double masked_result(Op op) { return op == Op::softmax ? 0 : -kInf; }

// ---- Rows of only −inf ------------------------------------------------------------------------

// One way to hide all of row 0 and nothing of the last row. What is hidden by position is NaN.
struct Hiding {
  std::string_view name;
  std::int64_t rows, cols;
  std::function<void(Values& x, Mask& mask)> hide;
};

std::vector<Hiding> hidings() {
  static Values additive, boolean, lengths;
  const auto nan_row = [](Values& x, std::int64_t cols) {
    for (std::int64_t c = 0; c < cols; ++c) x.set(c, kNan);
  };
  return {
      {"-inf in x", 3, 37,
       [](Values& x, Mask&) {
         for (std::int64_t c = 0; c < 37; ++c) x.set(c, -kInf);
       }},
      {"additive", 3, 37,
       [](Values&, Mask& mask) {
         additive = Values(DType::f32, {3, 37}, std::vector<double>(111, 0));
         for (std::int64_t c = 0; c < 37; ++c) additive.set(c, -kInf);
         mask.additive = additive.tensor();
       }},
      {"boolean", 3, 37,
       [nan_row](Values& x, Mask& mask) {
         boolean = Values(DType::u8, {3, 37}, std::vector<double>(111, 1));
         for (std::int64_t c = 0; c < 37; ++c) boolean.set(c, 0);
         mask.boolean = boolean.tensor();
         nan_row(x, 37);
       }},
      {"lengths", 3, 37,
       [nan_row](Values& x, Mask& mask) {
         lengths = Values(DType::i32, {3}, {0, 20, 37});
         mask.lengths = lengths.tensor();
         nan_row(x, 37);
       }},
      {"causal", 5, 3,  // query 0 of 5 stands two before the first of 3 keys
       [nan_row](Values& x, Mask& mask) {
         mask.causal = true;
         nan_row(x, 3);
       }},
      {"window", 4, 3,
       [nan_row](Values& x, Mask& mask) {
         mask.window_left = 5;
         mask.window_right = 0;
         nan_row(x, 3);
       }},
  };
}

TEST(MasksTest, FullyMaskedRowsGiveZerosAndAnLseOfMinusInf) {
  for (const Op op : kForward) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const Hiding& hiding : hidings()) {
        SCOPED_TRACE(hiding.name);
        Values x(dtype, {hiding.rows, hiding.cols}, numbers(hiding.rows * hiding.cols));
        SoftmaxOptions options{.variant = variant};
        hiding.hide(x, options.mask);
        Values y(dtype, result_shape(op, hiding.rows, hiding.cols));
        Values lse(dtype == DType::f64 ? DType::f64 : DType::f32, {hiding.rows});
        const bool with_lse =
            op != Op::logsumexp && variant != "cpu_short" && variant != "cpu_lanes";
        if (with_lse) options.lse = lse.tensor();
        const Status status = forward(op, Context::cpu(1), x, y, options);
        if (!variant.empty() && status.code() == Code::unsupported) continue;
        ASSERT_TRUE(status.ok()) << status.message();
        const std::int64_t each = y.size() / hiding.rows;
        for (std::int64_t i = 0; i < each; ++i) EXPECT_EQ(y.get(i), masked_result(op)) << i;
        for (std::int64_t i = y.size() - each; i < y.size(); ++i) {
          EXPECT_TRUE(std::isfinite(y.get(i))) << i << ": " << y.get(i);
        }
        if (with_lse) {
          EXPECT_EQ(lse.get(0), -kInf);
          EXPECT_TRUE(std::isfinite(lse.get(hiding.rows - 1)));
        }
      }
    });
  }
}

TEST(MasksTest, FullyMaskedRowsHaveNoGradient) {
  for (const Op op : {Op::softmax_backward, Op::log_softmax_backward}) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const Hiding& hiding : hidings()) {
        // −inf in x hides nothing from log_softmax_backward, which does not see x.
        if (hiding.name == "-inf in x" || hiding.name == "additive") continue;
        SCOPED_TRACE(hiding.name);
        const std::int64_t count = hiding.rows * hiding.cols;
        Values y(dtype, {hiding.rows, hiding.cols},
                 std::vector<double>(static_cast<std::size_t>(count), 0.25));
        const Values dy(dtype, {hiding.rows, hiding.cols}, numbers(count, 2));
        Values dx(dtype, {hiding.rows, hiding.cols});
        BackwardOptions options{.variant = variant};
        hiding.hide(y, options.mask);
        const Status status =
            op == Op::softmax_backward
                ? softmax_backward(Context::cpu(1), y.tensor(), dy.tensor(), dx.tensor(), options)
                : log_softmax_backward(Context::cpu(1), y.tensor(), dy.tensor(), dx.tensor(),
                                       options);
        ASSERT_TRUE(status.ok()) << status.message();
        for (std::int64_t i = 0; i < hiding.cols; ++i) EXPECT_EQ(dx.get(i), 0) << i;
        for (std::int64_t i = count - hiding.cols; i < count; ++i) {
          EXPECT_TRUE(std::isfinite(dx.get(i))) << i;
        }
      }
    });
  }
}

TEST(MasksTest, AFullyMaskedRowHasAnInfiniteLossAndNoGradient) {
  for_each_way(Op::cross_entropy, [&](DType dtype, std::string_view variant) {
    for (const Hiding& hiding : hidings()) {
      SCOPED_TRACE(hiding.name);
      Values x(dtype, {hiding.rows, hiding.cols}, numbers(hiding.rows * hiding.cols));
      const Values target(DType::i64, {hiding.rows},
                          std::vector<double>(static_cast<std::size_t>(hiding.rows), 1));
      const Values dloss(dtype, {hiding.rows},
                         std::vector<double>(static_cast<std::size_t>(hiding.rows), 1));
      Values loss(dtype, {hiding.rows});
      Values lse(dtype == DType::f64 ? DType::f64 : DType::f32, {hiding.rows});
      Values dx(dtype, {hiding.rows, hiding.cols});
      Values dx_by_lse = dx;
      CrossEntropyOptions options{.variant = variant};
      hiding.hide(x, options.mask);
      options.lse = lse.tensor();
      ASSERT_TRUE(
          cross_entropy(Context::cpu(1), x.tensor(), target.tensor(), loss.tensor(), options).ok());
      EXPECT_EQ(loss.get(0), kInf);
      EXPECT_EQ(lse.get(0), -kInf);
      EXPECT_TRUE(std::isfinite(loss.get(hiding.rows - 1)));
      options.lse = {};
      ASSERT_TRUE(cross_entropy_backward(Context::cpu(1), x.tensor(), target.tensor(), {},
                                         dloss.tensor(), dx.tensor(), options)
                      .ok());
      ASSERT_TRUE(cross_entropy_backward(Context::cpu(1), x.tensor(), target.tensor(), lse.tensor(),
                                         dloss.tensor(), dx_by_lse.tensor(), options)
                      .ok());
      for (std::int64_t i = 0; i < hiding.cols; ++i) {
        EXPECT_EQ(dx.get(i), 0) << i;
        EXPECT_EQ(dx_by_lse.get(i), 0) << i;
      }
    }
  });
}

// ---- What is hidden does not matter -----------------------------------------------------------

// A mask by position, and what it hides. The tensors must outlive the mask.
struct Blind {
  std::string_view name;
  Mask mask;
  std::function<bool(std::int64_t row, std::int64_t c)> hides;
};

std::vector<Blind> blinds(std::int64_t rows, std::int64_t cols, Values& keep, Values& length) {
  const auto pattern = [](std::int64_t r, std::int64_t c) { return (r + c) % 3 == 1; };
  keep = Values(DType::u8, {rows, cols});
  for (std::int64_t i = 0; i < rows * cols; ++i) keep.set(i, pattern(i / cols, i % cols) ? 0 : 1);
  const auto length_of = [cols](std::int64_t r) { return (r * 7 + 3) % cols; };
  length = Values(DType::i64, {rows});
  for (std::int64_t r = 0; r < rows; ++r) length.set(r, static_cast<double>(length_of(r)));
  const auto own = [rows, cols](std::int64_t r) { return r + cols - rows; };
  return {
      {"boolean", boolean(keep.tensor()), pattern},
      {"lengths", lengths(length.tensor()),
       [=](std::int64_t r, std::int64_t c) { return c >= length_of(r); }},
      {"causal", causal(), [=](std::int64_t r, std::int64_t c) { return c > own(r); }},
      {"window", window(4, 2),
       [=](std::int64_t r, std::int64_t c) { return c < own(r) - 4 || c > own(r) + 2; }},
  };
}

// Runs an op twice, with numbers and with NaN where `hides` says; both results must be the same
// bits. run gets what to put in the hidden places.
void expect_blind(const std::function<Values(double hidden)>& run) {
  const Values with_number = run(3);
  for (std::int64_t i = 0; i < with_number.size(); ++i) {
    ASSERT_FALSE(std::isnan(with_number.get(i))) << i;
  }
  EXPECT_EQ(with_number, run(kNan));
  EXPECT_EQ(with_number, run(kInf));
}

Values overlaid(DType dtype, std::int64_t rows, std::int64_t cols, std::vector<double> values,
                const Blind& blind, double hidden) {
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    if (blind.hides(i / cols, i % cols)) values[static_cast<std::size_t>(i)] = hidden;
  }
  return Values(dtype, {rows, cols}, values);
}

TEST(MasksTest, WhatAMaskHidesMayBeAnything) {
  constexpr std::int64_t rows = 6, cols = 50;
  Values keep, length;
  const std::vector<Blind> all = blinds(rows, cols, keep, length);
  for (const Op op : kForward) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const double softcap : {0.0, 5.0}) {
        for (const Blind& blind : all) {
          SCOPED_TRACE(blind.name);
          bool ran = true;
          const auto run = [&](double hidden) {
            const Values x = overlaid(dtype, rows, cols, numbers(rows * cols), blind, hidden);
            Values y(dtype, result_shape(op, rows, cols));
            const Status status =
                forward(op, Context::cpu(1), x, y,
                        {.softcap = softcap, .mask = blind.mask, .variant = variant});
            ran = status.ok();
            EXPECT_TRUE(ran || status.code() == Code::unsupported) << status.message();
            return ran ? y : Values();
          };
          run(0);
          if (ran) expect_blind(run);
        }
      }
    });
  }
}

TEST(MasksTest, WhatAMaskHidesFromAGradientMayBeAnything) {
  constexpr std::int64_t rows = 6, cols = 50;
  Values keep, length;
  const std::vector<Blind> all = blinds(rows, cols, keep, length);
  const std::vector<double> weights(rows * cols, 0.125);
  for (const bool log : {false, true}) {
    const Op op = log ? Op::log_softmax_backward : Op::softmax_backward;
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const Blind& blind : all) {
        for (const std::string_view where : {"y", "dy", "x"}) {
          SCOPED_TRACE(std::string(blind.name) + " in " + std::string(where));
          expect_blind([&](double hidden) {
            const auto part = [&](std::string_view name, const std::vector<double>& values) {
              return overlaid(dtype, rows, cols, values, blind, name == where ? hidden : 0.5);
            };
            const Values y = part("y", weights);
            const Values dy = part("dy", numbers(rows * cols, 2));
            const Values x = part("x", numbers(rows * cols, 3));
            Values dx(dtype, {rows, cols});
            const BackwardOptions options{
                .softcap = 4, .mask = blind.mask, .x = x.tensor(), .variant = variant};
            const Status status = log ? log_softmax_backward(Context::cpu(1), y.tensor(),
                                                             dy.tensor(), dx.tensor(), options)
                                      : softmax_backward(Context::cpu(1), y.tensor(), dy.tensor(),
                                                         dx.tensor(), options);
            EXPECT_TRUE(status.ok()) << status.message();
            return dx;
          });
        }
      }
    });
  }
}

TEST(MasksTest, WhatAMaskHidesFromALossMayBeAnything) {
  constexpr std::int64_t rows = 6, cols = 50;
  Values keep, length;
  const std::vector<Blind> all = blinds(rows, cols, keep, length);
  const Values target(DType::i64, {rows}, {0, 0, 1, 0, 2, 1});  // hidden for some, seen by others
  const Values ones(DType::f32, {rows}, {1, 1, 1, 1, 1, 1});
  for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const double smoothing : {0.0, 0.25}) {
        for (const Blind& blind : all) {
          SCOPED_TRACE(blind.name);
          const CrossEntropyOptions options{.softcap = 9,
                                            .mask = blind.mask,
                                            .label_smoothing = smoothing,
                                            .z_loss = 0.01,
                                            .variant = variant};
          expect_blind([&](double hidden) {
            const Values x = overlaid(dtype, rows, cols, numbers(rows * cols), blind, hidden);
            const bool back = op == Op::cross_entropy_backward;
            Values out(dtype, back ? std::vector{rows, cols} : std::vector{rows});
            const Status status =
                back ? cross_entropy_backward(Context::cpu(1), x.tensor(), target.tensor(), {},
                                              ones.tensor(), out.tensor(), options)
                     : cross_entropy(Context::cpu(1), x.tensor(), target.tensor(), out.tensor(),
                                     options);
            EXPECT_TRUE(status.ok()) << status.message();
            return out;
          });
        }
      }
    });
  }
}

}  // namespace
}  // namespace onepass
