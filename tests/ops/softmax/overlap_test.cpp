// Softmax of long rows past the caches, whatever this machine's plan for them would be: one row is
// written while the next is folded, and rows begin at every alignment.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/softmax/check.hpp"
#include "ops/softmax/cpu/variants.hpp"
#include "oracle/oracle.hpp"
#include "rows/cpu/layout.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace onepass::test;

constexpr std::int64_t kRows = 7;
constexpr std::int64_t kColumns[] = {5 * kTile + 11, 9 * kTile + 11};  // one stream, several

struct Pair {
  DType in, out;
};

constexpr Pair kPairs[] = {{DType::f32, DType::f32},  {DType::bf16, DType::bf16},
                           {DType::f16, DType::f16},  {DType::f64, DType::f64},
                           {DType::bf16, DType::f32}, {DType::f32, DType::bf16},
                           {DType::bf16, DType::f16}};

double largest_step(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    default: return 1e-5;
  }
}

Values softmax_past_the_caches(const Values& x, DType out, std::int64_t cols, int threads,
                               const SoftmaxOptions& options = {}) {
  Values y(out, {kRows, cols});
  RowArgs args;
  const Status checked = check_softmax(Op::softmax, x.tensor(), y.tensor(), options, args);
  EXPECT_TRUE(checked.ok()) << checked.message();
  const std::size_t width = size_of(compute_type(args.logits.x.dtype));
  const CpuLaunch launch{.threads = threads,
                         .resident = true,
                         .streaming = true,
                         .scratch_bytes = static_cast<std::size_t>(kept_elements(cols, 1)) * width};
  const Status status = ops::softmax::cpu_row(args, launch);
  EXPECT_TRUE(status.ok()) << status.message();
  return y;
}

void expect_rows(const Values& x, const Values& y, DType out, std::int64_t cols,
                 const Values* scales = nullptr) {
  for (std::int64_t r = 0; r < kRows; ++r) {
    const double scale = scales == nullptr ? 1 : scales->get(r);
    oracle::Row z;
    for (std::int64_t c = 0; c < cols; ++c) z.push_back(scale * x.get(r * cols + c));
    const oracle::Row expected = oracle::softmax(z);
    for (std::int64_t c = 0; c < cols; ++c) {
      const double want = expected[static_cast<std::size_t>(c)];
      const double got = y.get(r * cols + c);
      if (std::isnan(want) && std::isnan(got)) continue;
      // Half a step of the output, a few roundings on the way; what f16 has no digits for is 0.
      ASSERT_NEAR(got, want, want * 0.52 * largest_step(out) + 6e-8) << "row " << r << " col " << c;
    }
  }
}

TEST(OverlapTest, EveryAlignmentDtypeAndInstructionSet) {
  for (const std::int64_t cols : {2 * kTile, 2 * kTile + 1, 4 * kTile + 1, 6 * kTile + 43,
                                  8 * kTile - 1, 8 * kTile, 9 * kTile - 7}) {
    for (const Pair& pair : kPairs) {
      const Values x(pair.in, {kRows, cols},
                     numbers(kRows * cols, static_cast<std::uint64_t>(cols)));
      for_each_isa([&] {
        SCOPED_TRACE(std::string(name(pair.in)) + " to " + std::string(name(pair.out)) + ", " +
                     std::to_string(cols) + " columns");
        expect_rows(x, softmax_past_the_caches(x, pair.out, cols, 1), pair.out, cols);
      });
    }
  }
}

// A row that is NaN, infinite or empty has neighbours that share its place in the scratch memory.
TEST(OverlapTest, RowsTouchNoOther) {
  for (const std::int64_t cols : kColumns) {
    for (const DType dtype : kFloating) {
      std::vector<double> values = numbers(kRows * cols);
      values[static_cast<std::size_t>(1 * cols + 3 * kTile)] = kNan;
      values[static_cast<std::size_t>(2 * cols + 100)] = kInf;  // among the first few
      values[static_cast<std::size_t>(4 * cols + 100)] = kNan;
      std::fill_n(values.begin() + 3 * cols, cols, -kInf);
      values[static_cast<std::size_t>(5 * cols + 2 * kTile + 5)] = kInf;
      std::fill_n(values.begin() + 6 * cols, 2 * kTile, -kInf);  // and a maximum that rises late
      const Values x(dtype, {kRows, cols}, values);
      for_each_isa([&] {
        SCOPED_TRACE(name(dtype));
        expect_rows(x, softmax_past_the_caches(x, dtype, cols, 1), dtype, cols);
      });
    }
  }
}

// Weights are relative to the largest of a row's first few hundred elements. The rest
// may be anything.
TEST(OverlapTest, NothingNeedBeLikeTheFirstFew) {
  for (const std::int64_t cols : kColumns) {
    const auto row = [cols](std::vector<double>& values, std::int64_t r) {
      return values.begin() + r * cols;
    };
    for (const DType dtype : kFloating) {
      std::vector<double> values = numbers(kRows * cols);
      std::fill_n(row(values, 0), 2 * kTile, -30.0);   // below the rest, not far
      std::fill_n(row(values, 1), 2 * kTile, -300.0);  // far
      std::fill_n(row(values, 2), 2 * kTile, 300.0);   // above it
      std::fill_n(row(values, 3), cols, -60000.0);     // far from 0, and one still far above
      *(row(values, 3) + 4 * kTile) = 60000.0;
      for (std::int64_t c = 0; c < cols; ++c) *(row(values, 4) + c) = 0.1 * static_cast<double>(c);
      *(row(values, 5) + cols - 1) = 200;  // the last
      if (dtype != DType::f16) std::fill_n(row(values, 6), 3 * kTile, 3e38);
      const Values x(dtype, {kRows, cols}, values);
      for_each_isa([&] {
        SCOPED_TRACE(name(dtype));
        expect_rows(x, softmax_past_the_caches(x, dtype, cols, 1), dtype, cols);
      });
    }
  }
}

double largest_error(const Values& x, const Values& y, std::int64_t cols) {
  double largest = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    oracle::Row z;
    for (std::int64_t c = 0; c < cols; ++c) z.push_back(x.get(r * cols + c));
    const oracle::Row want = oracle::softmax(z);
    for (std::int64_t c = 0; c < cols; ++c) {
      const double expected = want[static_cast<std::size_t>(c)];
      if (expected < 1e-7) continue;
      largest = std::max(largest, std::abs(y.get(r * cols + c) / expected - 1));
    }
  }
  return largest;
}

// Additions that all round the same way. (One lane and tiles of 1024, as SCALAR has them, are off
// by 18 ulps; one sum over the row was by 53 and more.)
TEST(OverlapTest, SumsOfEqualWeightsDoNotDrift) {
  const std::int64_t cols = 50257;
  std::vector<double> values(static_cast<std::size_t>(kRows * cols), -0.83);
  for (std::int64_t r = 0; r < kRows; ++r) values[static_cast<std::size_t>(r * cols + 999)] = 0;
  std::fill_n(values.begin() + 3 * cols, 2 * kTile, -100.0);  // a row that is weighed again
  const Values x(DType::f32, {kRows, cols}, values);
  for_each_isa([&] {
    EXPECT_LT(largest_error(x, softmax_past_the_caches(x, DType::f32, cols, 1), cols),
              20 * 0x1p-23);
  });
}

// A difference of 40 is rounded to 2e-6.
TEST(OverlapTest, AFarReferenceCostsNoDigits) {
  for (const std::int64_t cols : kColumns) {
    std::vector<double> values = numbers(kRows * cols);
    for (std::int64_t r = 0; r < kRows; ++r) std::fill_n(values.begin() + r * cols, 600, -40.0);
    const Values x(DType::f32, {kRows, cols}, values);
    for_each_isa([&] {
      EXPECT_LT(largest_error(x, softmax_past_the_caches(x, DType::f32, cols, 1), cols),
                8 * 0x1p-23);
    });
  }
}

TEST(OverlapTest, LseOfEveryRow) {
  for (const std::int64_t cols : kColumns) {
    for (const DType dtype : kFloating) {
      std::vector<double> values = numbers(kRows * cols);
      for (std::int64_t r = 1; r < kRows; ++r) {  // about 0, −10, 20, −40, …: all in reach of f16
        for (std::int64_t c = 0; c < cols; ++c) {
          values[static_cast<std::size_t>(r * cols + c)] += 5 * std::pow(-2.0, r);
        }
      }
      std::fill_n(values.begin() + 2 * cols, 2 * kTile, -1000.0);
      const Values x(dtype, {kRows, cols}, values);
      Values lse(compute_type(dtype), {kRows});
      SoftmaxOptions options;
      options.lse = lse.tensor();
      for_each_isa([&] {
        SCOPED_TRACE(name(dtype));
        softmax_past_the_caches(x, dtype, cols, 1, options);
        for (std::int64_t r = 0; r < kRows; ++r) {
          oracle::Row z;
          for (std::int64_t c = 0; c < cols; ++c) z.push_back(x.get(r * cols + c));
          const double want = oracle::logsumexp(z);
          EXPECT_NEAR(lse.get(r), want, 1e-6 * (1 + std::abs(want))) << "row " << r;
        }
      });
    }
  }
}

TEST(OverlapTest, OptionsAndThreads) {
  const std::int64_t cols = 6 * kTile + 9;
  for (const DType dtype : kFloating) {
    const Values x(dtype, {kRows, cols}, numbers(kRows * cols));
    // A scale a row: rows without one stand beside rows with one, which come another way.
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Values scales(wide, {kRows}, {1, 0.5, 1, 1, 0.5, 0.5, 1});
    SoftmaxOptions options;
    options.scale = scales.tensor();
    for_each_isa([&] {
      SCOPED_TRACE(name(dtype));
      for (const int threads : {1, 3}) {
        expect_rows(x, softmax_past_the_caches(x, dtype, cols, threads), dtype, cols);
        expect_rows(x, softmax_past_the_caches(x, dtype, cols, threads, options), dtype, cols,
                    &scales);
      }
    });
  }
}

}  // namespace
}  // namespace onepass
