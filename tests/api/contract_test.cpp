// The numerics contract, through the public API: NaN, infinities and finite extremes, for every
// variant on every instruction set. Masks: masks_test.cpp; bits: same_bits_test.cpp;
// threads, memory: placement_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

// ---- NaN and +inf -----------------------------------------------------------------------------

TEST(ContractTest, ANanMakesItsOwnRowNanAndTouchesNoOther) {
  constexpr std::int64_t rows = 5, cols = 45;
  for (const Op op : kForward) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const int axis : {1, 0}) {
        // Axis 0: the rows are columns in memory, and share vectors in cpu_lanes.
        const std::vector<std::int64_t> shape =
            axis == 1 ? std::vector{rows, cols} : std::vector{cols, rows};
        const auto at = [&](std::int64_t r, std::int64_t c) {
          return axis == 1 ? r * cols + c : c * rows + r;
        };
        const std::vector<std::int64_t> out_shape = op == Op::logsumexp ? std::vector{rows} : shape;
        const SoftmaxOptions options{.axis = axis, .variant = variant};
        Values x(dtype, shape, numbers(rows * cols));
        Values clean(dtype, out_shape);
        const Status status = forward(op, Context::cpu(1), x, clean, options);
        if (!variant.empty() && status.code() == Code::unsupported) continue;
        ASSERT_TRUE(status.ok()) << status.message();
        for (const std::int64_t c : {std::int64_t{0}, cols / 2, cols - 1}) {
          Values dirty_x = x;
          dirty_x.set(at(2, c), kNan);
          Values dirty(dtype, out_shape);
          ASSERT_TRUE(forward(op, Context::cpu(1), dirty_x, dirty, options).ok());
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t k = 0; k < (op == Op::logsumexp ? 1 : cols); ++k) {
              const std::int64_t i = op == Op::logsumexp ? r : at(r, k);
              if (r == 2) {
                EXPECT_TRUE(std::isnan(dirty.get(i))) << "axis " << axis << ", NaN at " << c;
              } else {
                EXPECT_EQ(dirty.get(i), clean.get(i)) << "axis " << axis << ", NaN at " << c;
              }
            }
          }
        }
      }
    });
  }
}

TEST(ContractTest, ANanInAGradientStaysInItsRow) {
  constexpr std::int64_t rows = 4, cols = 70;
  const std::vector<std::int64_t> shape = {rows, cols};
  for (const bool log : {false, true}) {
    for_each_way(log ? Op::log_softmax_backward : Op::softmax_backward,
                 [&](DType dtype, std::string_view variant) {
                   const Values y(dtype, shape,
                                  std::vector<double>(rows * cols, log ? -4.0 : 0.0625));
                   const Values dy(dtype, shape, numbers(rows * cols));
                   const auto run = [&](const Values& a, const Values& b, Values& dx) {
                     const BackwardOptions options{.variant = variant};
                     return log ? log_softmax_backward(Context::cpu(1), a.tensor(), b.tensor(),
                                                       dx.tensor(), options)
                                : softmax_backward(Context::cpu(1), a.tensor(), b.tensor(),
                                                   dx.tensor(), options);
                   };
                   Values clean(dtype, shape);
                   ASSERT_TRUE(run(y, dy, clean).ok());
                   for (const bool in_y : {true, false}) {
                     Values dirty_y = y, dirty_dy = dy, dx(dtype, shape);
                     (in_y ? dirty_y : dirty_dy).set(cols + 33, kNan);
                     ASSERT_TRUE(run(dirty_y, dirty_dy, dx).ok());
                     EXPECT_TRUE(std::isnan(dx.get(cols + 33)));
                     for (std::int64_t i = 0; i < rows * cols; ++i) {
                       if (i / cols != 1) {
                         EXPECT_EQ(dx.get(i), clean.get(i)) << i;
                       }
                     }
                   }
                 });
  }
}

TEST(ContractTest, ANanInALossStaysInItsRow) {
  constexpr std::int64_t rows = 4, cols = 70;
  for_each_way(Op::cross_entropy, [&](DType dtype, std::string_view variant) {
    Values x(dtype, {rows, cols}, numbers(rows * cols));
    const Values target(DType::i32, {rows}, {0, 5, 33, 69});
    const Values ones(dtype, {rows}, {1, 1, 1, 1});
    const CrossEntropyOptions options{.variant = variant};
    const auto run = [&](Values& loss, Values& dx) {
      ASSERT_TRUE(
          cross_entropy(Context::cpu(1), x.tensor(), target.tensor(), loss.tensor(), options).ok());
      ASSERT_TRUE(cross_entropy_backward(Context::cpu(1), x.tensor(), target.tensor(), {},
                                         ones.tensor(), dx.tensor(), options)
                      .ok());
    };
    Values loss(dtype, {rows}), dx(dtype, {rows, cols});
    run(loss, dx);
    x.set(2 * cols + 1, kNan);
    Values dirty_loss(dtype, {rows}), dirty_dx(dtype, {rows, cols});
    run(dirty_loss, dirty_dx);
    for (std::int64_t r = 0; r < rows; ++r) {
      EXPECT_EQ(std::isnan(dirty_loss.get(r)), r == 2);
      if (r != 2) {
        EXPECT_EQ(dirty_loss.get(r), loss.get(r));
      }
      for (std::int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        EXPECT_EQ(std::isnan(dirty_dx.get(i)), r == 2) << i;
        if (r != 2) {
          EXPECT_EQ(dirty_dx.get(i), dx.get(i)) << i;
        }
      }
    }
  });
}

TEST(ContractTest, PlusInfinityGivesNanAndAnLseOfPlusInfinity) {
  constexpr std::int64_t rows = 3, cols = 40;
  for (const Op op : kForward) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      for (const std::int64_t c : {std::int64_t{0}, cols / 2, cols - 1}) {
        Values x(dtype, {rows, cols}, numbers(rows * cols));
        x.set(cols + c, kInf);      // row 1: one +inf
        x.set(2 * cols + c, kInf);  // row 2: and a NaN besides
        x.set(2 * cols + 7, kNan);
        Values y(dtype, result_shape(op, rows, cols));
        const Status status = forward(op, Context::cpu(1), x, y, {.variant = variant});
        if (!variant.empty() && status.code() == Code::unsupported) continue;
        ASSERT_TRUE(status.ok()) << status.message();
        if (op == Op::logsumexp) {
          EXPECT_TRUE(std::isfinite(y.get(0)));
          EXPECT_EQ(y.get(1), kInf) << "+inf at " << c;
          EXPECT_TRUE(std::isnan(y.get(2))) << "+inf at " << c;
          continue;
        }
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          EXPECT_EQ(std::isnan(y.get(i)), i >= cols) << i << ", +inf at " << c;
        }
      }
    });
  }
}

TEST(ContractTest, TheLseOfPlusInfinityIsTheSameInPlace) {
  constexpr std::int64_t rows = 2, cols = 40000;  // enough for pieces
  for (const Op op : {Op::softmax, Op::log_softmax}) {
    for (const std::string_view variant : {"cpu_serial", "cpu_row", "cpu_split"}) {
      SCOPED_TRACE(std::string(name(op)) + " " + std::string(variant));
      Values x(DType::f32, {rows, cols}, numbers(rows * cols));
      x.set(cols + 5, kInf);
      Values lse(DType::f32, {rows});
      ASSERT_TRUE(
          forward(op, Context::cpu(2), x, x, {.lse = lse.tensor(), .variant = variant}).ok());
      EXPECT_TRUE(std::isfinite(lse.get(0)));
      EXPECT_EQ(lse.get(1), kInf);
    }
  }
}

// ---- Finite numbers, large and small ----------------------------------------------------------

TEST(ContractTest, RowsSumToOne) {
  constexpr std::int64_t rows = 4, cols = 1000;
  const auto epsilon = [](DType dtype) {
    switch (dtype) {
      case DType::f16: return 0x1p-10;
      case DType::bf16: return 0x1p-7;
      case DType::f64: return 0x1p-52;
      default: return 0x1p-23;
    }
  };
  for_each_way(Op::softmax, [&](DType dtype, std::string_view variant) {
    const Values x(dtype, {rows, cols}, numbers(rows * cols));
    Values y(dtype, {rows, cols});
    const Status status = forward(Op::softmax, Context::cpu(1), x, y, {.variant = variant});
    if (!variant.empty() && status.code() == Code::unsupported) return;
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::int64_t r = 0; r < rows; ++r) {
      oracle::Row weights;
      for (std::int64_t c = 0; c < cols; ++c) weights.push_back(y.get(r * cols + c));
      // Each weight is rounded once; a sum of one element after the other also walks.
      const double ulps = variant == "cpu_serial" ? 64 : 8;
      EXPECT_NEAR(oracle::sum(weights), 1, ulps * epsilon(dtype)) << r;
      EXPECT_GE(*std::min_element(weights.begin(), weights.end()), 0);
    }
  });
}

TEST(ContractTest, AShiftOfTheWholeRowChangesNoBit) {
  constexpr std::int64_t rows = 3, cols = 333;
  const std::vector<double> values = numbers(rows * cols);
  for (const Op op : {Op::softmax, Op::log_softmax}) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      // The sums are exact in each dtype, so x − m is the same number.
      const double shift = dtype == DType::bf16 ? 32 : dtype == DType::f16 ? 500 : 100000;
      std::vector<double> shifted = values;
      for (double& v : shifted) v += shift;
      Values here(dtype, {rows, cols}), there(dtype, {rows, cols});
      const Status status = forward(op, Context::cpu(1), Values(dtype, {rows, cols}, values), here,
                                    {.variant = variant});
      if (!variant.empty() && status.code() == Code::unsupported) return;
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(forward(op, Context::cpu(1), Values(dtype, {rows, cols}, shifted), there,
                          {.variant = variant})
                      .ok());
      EXPECT_EQ(here, there);
    });
  }
}

TEST(ContractTest, FiniteExtremesStayFinite) {
  for (const Op op : kForward) {
    for_each_way(op, [&](DType dtype, std::string_view variant) {
      const double huge = dtype == DType::f16 ? 65504 : dtype == DType::f64 ? 1.7e308 : 3e38;
      // Both in one vector, and in two tiles; the second row is the other way round.
      for (const std::int64_t cols : {std::int64_t{2}, std::int64_t{5000}}) {
        Values x(dtype, {2, cols}, std::vector<double>(static_cast<std::size_t>(2 * cols), 0));
        x.set(0, huge);
        x.set(cols - 1, -huge);
        x.set(cols, -huge);
        x.set(2 * cols - 1, huge);
        const double top = x.get(0);
        Values y(dtype, result_shape(op, 2, cols));
        const Status status = forward(op, Context::cpu(1), x, y, {.variant = variant});
        if (!variant.empty() && status.code() == Code::unsupported) continue;
        ASSERT_TRUE(status.ok()) << status.message();
        if (op == Op::logsumexp) {
          EXPECT_EQ(y.get(0), top);
          EXPECT_EQ(y.get(1), top);
          continue;
        }
        for (std::int64_t i = 0; i < 2 * cols; ++i) {
          const bool peak = i == 0 || i == 2 * cols - 1;
          if (op == Op::softmax) {
            EXPECT_EQ(y.get(i), peak ? 1 : 0) << i;
          } else if (peak) {
            EXPECT_EQ(y.get(i), 0) << i;
          } else {
            EXPECT_LE(y.get(i), -top * 0.99) << i;  // −inf where the difference overflows
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace onepass
