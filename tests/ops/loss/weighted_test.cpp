// Cross-entropy whose classes have weights, or probabilities as targets: what it means where values
// against the oracle do not say so, what is refused, and the plan of a GPU. Values: the lines of
// workloads/test_row_ops.txt, in verify_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "onepass/onepass.hpp"
#include "tests/support/values.hpp"

namespace onepass::test {
namespace {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 11;

using List = std::vector<double>;

Values matrix(const List& values, DType dtype = DType::f64) {
  return {dtype, {kRows, kCols}, values};
}

Values targets(const List& values = {0, 4, 10, 2, 7, 7}) { return {DType::i64, {kRows}, values}; }

List some_weights() { return {1, 0.5, 2, 0.25, 3, 1, 1, 0, 0.75, 1.5, 4}; }

struct Result {
  Values loss{DType::f64, {kRows}};
  Values dx{DType::f64, {kRows, kCols}};
};

void expect_near(const Values& got, const Values& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::int64_t i = 0; i < got.size(); ++i) {
    if (got.get(i) == expected.get(i)) continue;  // inf
    if (std::isnan(got.get(i)) && std::isnan(expected.get(i))) continue;
    EXPECT_NEAR(got.get(i), expected.get(i), tolerance) << i;
  }
}

// All three functions; they agree, but for the last bits.
Result run(const Values& x, const Values& target, const CrossEntropyOptions& options = {}) {
  const Context cpu = Context::cpu(2);
  const bool reduced = options.reduction != Reduction::none;
  Result r;
  Values ones(DType::f64, {kRows}, List(kRows, 1));
  if (reduced) {
    r.loss = Values(DType::f64, {});
    ones = Values(DType::f64, {}, {1});
  }
  Result both = r;
  const auto ok = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
  ok(cross_entropy(cpu, x.tensor(), target.tensor(), r.loss.tensor(), options));
  ok(cross_entropy_backward(cpu, x.tensor(), target.tensor(), {}, ones.tensor(), r.dx.tensor(),
                            options));
  ok(cross_entropy_with_gradient(cpu, x.tensor(), target.tensor(), both.loss.tensor(),
                                 both.dx.tensor(), options));
  expect_near(both.loss, r.loss, 1e-13);
  expect_near(both.dx, r.dx, 1e-13);
  return r;
}

TEST(WeightedLossTest, WeightsOfOneChangeNothing) {
  const Values x = matrix(numbers(kRows * kCols));
  const Values ones(DType::f32, {kCols}, List(kCols, 1));
  for (const double smoothing : {0.0, 0.25, 1.0}) {
    for (const Reduction reduction : {Reduction::none, Reduction::mean}) {
      CrossEntropyOptions options{
          .label_smoothing = smoothing, .z_loss = 0.1, .reduction = reduction};
      const Result plain = run(x, targets({0, 4, -100, 2, 7, 7}), options);
      options.weight = ones.tensor();
      const Result weighted = run(x, targets({0, 4, -100, 2, 7, 7}), options);
      expect_near(weighted.loss, plain.loss, 1e-12);
      expect_near(weighted.dx, plain.dx, 1e-12);
    }
  }
}

TEST(WeightedLossTest, AWeightIsAFactorOfItsRows) {
  const Values x = matrix(numbers(kRows * kCols));
  const Values w(DType::f64, {kCols}, some_weights());
  const Result plain = run(x, targets());
  const Result weighted = run(x, targets(), {.weight = w.tensor()});
  for (std::int64_t r = 0; r < kRows; ++r) {
    const double factor = w.get(static_cast<std::int64_t>(targets().get(r)));
    EXPECT_NEAR(weighted.loss.get(r), factor * plain.loss.get(r), 1e-12);
    for (std::int64_t i = r * kCols; i < (r + 1) * kCols; ++i) {
      EXPECT_NEAR(weighted.dx.get(i), factor * plain.dx.get(i), 1e-12);
    }
  }
}

TEST(WeightedLossTest, TheMeanIsByTheWeightsOfTheTargetsThatCount) {
  const Values x = matrix(numbers(kRows * kCols));
  const Values w(DType::f64, {kCols}, some_weights());
  const Values target = targets({0, 4, -100, 2, 7, 9});
  const Result each = run(x, target, {.weight = w.tensor()});
  const Result mean = run(x, target, {.weight = w.tensor(), .reduction = Reduction::mean});
  double sum = 0;
  for (std::int64_t r = 0; r < kRows; ++r) sum += each.loss.get(r);
  EXPECT_NEAR(mean.loss.get(0), sum / (1 + 3 + 2 + 0 + 1.5), 1e-12);
  EXPECT_EQ(each.loss.get(2), 0);
  EXPECT_NEAR(mean.dx.get(3), each.dx.get(3) / 7.5, 1e-12);

  for (const Values& none : {targets(List(kRows, -100)), targets(List(kRows, 7))}) {  // weight 0
    const Result nothing = run(x, none, {.weight = w.tensor(), .reduction = Reduction::mean});
    EXPECT_EQ(nothing.loss.get(0), 0);
    for (std::int64_t i = 0; i < kRows * kCols; ++i) EXPECT_EQ(nothing.dx.get(i), 0);
  }
}

TEST(WeightedLossTest, WeightsOfAnyTypeAndStride) {
  const Values x = matrix(numbers(kRows * kCols));
  const Values w(DType::f64, {kCols}, some_weights());
  const Result expected = run(x, targets(), {.weight = w.tensor(), .label_smoothing = 0.1});
  for (const DType dtype : kFloating) {
    List apart(2 * kCols, kNan);
    for (std::size_t c = 0; c < kCols; ++c) apart[2 * (kCols - 1 - c)] = some_weights()[c];
    Values memory(dtype, {2 * kCols}, apart);
    auto* first = static_cast<std::byte*>(memory.tensor().data) + 2 * (kCols - 1) * size_of(dtype);
    const Tensor backwards(first, dtype, {kCols}, {-2});
    const Result got = run(x, targets(), {.weight = backwards, .label_smoothing = 0.1});
    expect_near(got.loss, expected.loss, 1e-12);
    expect_near(got.dx, expected.dx, 1e-12);
  }
  Values half(DType::f64, {1}, {0.5});
  const Tensor same(half.tensor().data, DType::f64, {kCols}, {0});
  const Result halves = run(x, targets(), {.weight = same});
  const Result plain = run(x, targets());
  for (std::int64_t r = 0; r < kRows; ++r) {
    EXPECT_NEAR(halves.loss.get(r), plain.loss.get(r) / 2, 1e-12);
  }
}

TEST(WeightedLossTest, AHiddenTargetCountsUnlessItsWeightIsZero) {
  const Values x = matrix(numbers(kRows * kCols));
  const Values w(DType::f64, {kCols}, some_weights());
  const Values target = targets({7, 10, 0, 7, 8, 1});
  const Values lengths(DType::i32, {kRows}, {5, 5, 5, 0, 11, 11});
  const Result r = run(x, target, {.mask = {.lengths = lengths.tensor()}, .weight = w.tensor()});
  EXPECT_EQ(r.loss.get(0), 0);     // hidden, of weight 0
  EXPECT_EQ(r.loss.get(1), kInf);  // hidden
  EXPECT_GT(r.loss.get(2), 0);
  EXPECT_EQ(r.loss.get(3), 0);  // as is all of its row
  EXPECT_TRUE(std::isfinite(r.loss.get(4)));
  for (std::int64_t i = 0; i < kRows * kCols; ++i) EXPECT_TRUE(std::isfinite(r.dx.get(i))) << i;
}

TEST(WeightedLossTest, AnOffsetOfTheLogitsCostsNoDigits) {
  List x = numbers(kRows * kCols);
  const Values w(DType::f32, {kCols}, some_weights());
  const CrossEntropyOptions options{.weight = w.tensor(), .label_smoothing = 0.25};
  const Result expected = run(matrix(x, DType::f32), targets(), options);
  for (double& value : x) value += 1 << 20;
  const Result got = run(matrix(x, DType::f32), targets(), options);
  expect_near(got.loss, expected.loss, 1e-7);
  expect_near(got.dx, expected.dx, 1e-7);
}

TEST(WeightedLossTest, WhatIsWrongWithWeightsIsNamed) {
  const Values x = matrix(numbers(kRows * kCols));
  Values w(DType::f64, {kCols}, some_weights());
  Values loss(DType::f64, {kRows});
  const auto refused = [&](const Tensor& weight, std::string_view words) {
    const Status status = cross_entropy(Context::cpu(1), x.tensor(), targets().tensor(),
                                        loss.tensor(), {.weight = weight});
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  void* const data = w.tensor().data;
  refused({data, DType::f64, {kCols - 1}}, "weight: shape [10] is not one value for each of 11");
  refused({data, DType::f64, {1, kCols}}, "weight: shape [1, 11] is not one value");
  refused({data, DType::i64, {kCols}}, "weight: dtype i64");
  refused({nullptr, DType::f64, {kCols}}, "weight: is a null pointer");
  refused({loss.tensor().data, DType::f64, {kCols}}, "loss: overlaps weight");
}

TEST(ProbabilitiesTest, ThoseOfOneClassAreItsIndex) {
  const Values x = matrix(numbers(kRows * kCols));
  const Values w(DType::f64, {kCols}, some_weights());
  const Values lengths(DType::i32, {kRows}, {11, 7, 11, 3, 0, 8});
  List q(kRows * kCols, 0);
  for (std::int64_t r = 0; r < kRows; ++r) {
    q[static_cast<std::size_t>(r * kCols + static_cast<std::int64_t>(targets().get(r)))] = 1;
  }
  for (const double smoothing : {0.0, 0.25, 1.0}) {
    for (const Reduction reduction : {Reduction::none, Reduction::sum}) {
      const CrossEntropyOptions options{.mask = {.lengths = lengths.tensor()},
                                        .weight = w.tensor(),
                                        .label_smoothing = smoothing,
                                        .z_loss = 0.1,
                                        .reduction = reduction};
      const Result index = run(x, targets(), options);
      const Result one = run(x, matrix(q), options);
      expect_near(one.loss, index.loss, 1e-12);
      expect_near(one.dx, index.dx, 1e-12);
    }
  }
}

TEST(ProbabilitiesTest, AHiddenClassCountsWhereItHasOne) {
  List x = numbers(kRows * kCols);
  for (std::size_t r = 0; r < kRows; ++r) x[r * kCols + 9] = kNan;  // hidden, so it is not there
  List q(kRows * kCols, 0);
  for (std::size_t r = 0; r < kRows; ++r) q[r * kCols + r] = 0.5;
  q[2 * kCols + 10] = 0.25;
  q[3 * kCols + 7] = 0.25;
  q[4 * kCols + 8] = kNan;
  const Values lengths(DType::i32, {kRows}, {5, 5, 5, 7, 7, 0});
  const CrossEntropyOptions options{.mask = {.lengths = lengths.tensor()}};
  const Result r = run(matrix(x), matrix(q), options);
  EXPECT_TRUE(std::isfinite(r.loss.get(0)) && r.loss.get(0) > 0);
  EXPECT_TRUE(std::isfinite(r.loss.get(1)));
  EXPECT_EQ(r.loss.get(2), kInf);
  EXPECT_EQ(r.loss.get(3), kInf);
  EXPECT_TRUE(std::isnan(r.loss.get(4)));
  EXPECT_EQ(r.loss.get(5), kInf);
  for (std::int64_t i = 0; i < 4 * kCols; ++i) EXPECT_TRUE(std::isfinite(r.dx.get(i))) << i;
  for (std::int64_t i = 5; i < kCols; ++i) EXPECT_EQ(r.dx.get(i), 0) << i;

  std::ranges::fill(q, 0.0);
  const Result none = run(matrix(x), matrix(q), options);
  for (std::int64_t i = 0; i < kRows; ++i) EXPECT_EQ(none.loss.get(i), 0) << i;
}

TEST(ProbabilitiesTest, OfAnyTypeAndStride) {
  const Values x = matrix(numbers(kRows * kCols));
  List q = numbers(kRows * kCols, 5);
  for (double& each : q) each = std::abs(each) / 16;
  const Result expected = run(x, matrix(q));
  for (const DType dtype : kFloating) {
    List turned(kRows * kCols);  // a class after the other
    for (std::size_t i = 0; i < turned.size(); ++i) turned[i % kCols * kRows + i / kCols] = q[i];
    Values memory(dtype, {kCols, kRows}, turned);
    const Tensor target(memory.tensor().data, dtype, {kRows, kCols}, {1, kRows});
    Result got;
    ASSERT_TRUE(cross_entropy_with_gradient(Context::cpu(2), x.tensor(), target, got.loss.tensor(),
                                            got.dx.tensor())
                    .ok());
    expect_near(got.loss, expected.loss, 1e-12);
    expect_near(got.dx, expected.dx, 1e-12);
  }
}

TEST(ProbabilitiesTest, WhatIsWrongWithThemIsNamed) {
  const Values x = matrix(numbers(kRows * kCols));
  Values q = matrix(List(kRows * kCols, 0.5));
  Values loss(DType::f64, {kRows});
  const auto refused = [&](const Tensor& target, std::string_view words,
                           const CrossEntropyOptions& options = {}) {
    const Status status =
        cross_entropy(Context::cpu(1), x.tensor(), target, loss.tensor(), options);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  void* const data = q.tensor().data;
  refused({data, DType::f64, {kRows}},
          "target: dtype f64 and shape [6]: probabilities have the "
          "shape of x, [6, 11], and class indices are i32 or i64");
  refused({data, DType::f64, {kCols, kRows}}, "target: dtype f64 and shape [11, 6]");
  refused({data, DType::u8, {kRows, kCols}}, "target: dtype u8");
  refused({data, DType::i64, {kRows, kCols}}, "target: shape [6, 11]");
  refused(q.tensor(), "ignore_index: 3 is a class", {.ignore_index = 3});
  refused({nullptr, DType::f64, {kRows, kCols}}, "target: is a null pointer");
  const Status over = cross_entropy_with_gradient(Context::cpu(1), x.tensor(), q.tensor(),
                                                  loss.tensor(), q.tensor());
  EXPECT_NE(over.message().find("dx: overlaps target"), std::string::npos) << over.message();
}

TEST(WeightedLossTest, AGpuHasOneKernelForAll) {
  const Machine h200 = *find_machine("h200");
  for (const std::int64_t cols : {1, 19, 256, 1000, 32000, 128256, 4000000}) {
    for (const DType in : kFloating) {
      for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
        const Problem p{.op = op, .rows = 512, .cols = cols, .in = in, .out = in, .weighted = true};
        const Decision decision = choose(p, h200);
        EXPECT_EQ(decision.variant(), "gpu_weighted");
        const auto& plan = std::get<gpu_rows::WeightedLaunch>(decision.launch);
        EXPECT_LE(plan.shared_bytes + 8192, static_cast<std::size_t>(h200.gpu.block_shared));
        EXPECT_EQ(plan.threads % plan.row_threads, 0);
        EXPECT_GE(plan.blocks * (plan.threads / plan.row_threads), p.rows);
        EXPECT_TRUE(plan.resident || cols > 20000);
        for (const std::string_view other : {"gpu_group", "gpu_block", "gpu_cluster", "gpu_grid"}) {
          Decision refused;
          const Status status = plan_variant(other, p, h200, refused);
          EXPECT_NE(status.message().find("weights nor probabilities"), std::string::npos) << other;
        }
      }
    }
  }
}

}  // namespace
}  // namespace onepass::test
