// Unusual input that must succeed: nothing at all, scalars, broadcasts, any strides.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

const Context kOne = Context::cpu(1);

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

void expect_near(const Values& got, const Values& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.get(i), wanted.get(i), 1e-6) << i;
}

Values softmax_of(const Values& x, const std::vector<std::int64_t>& shape,
                  const SoftmaxOptions& options = {}) {
  Values y(DType::f32, shape);
  expect_ok(softmax(kOne, x.tensor(), y.tensor(), options));
  return y;
}

// ---- Nothing ----------------------------------------------------------------------------------

// Every op on tensors without elements, at the address given.
void run_on_nothing(void* at, std::vector<std::int64_t> shape, std::vector<std::int64_t> outer,
                    int axis = -1) {
  const Tensor full(at, DType::f32, shape), each(at, DType::f32, outer);
  const ConstTensor target(at, DType::i32, outer);
  expect_ok(softmax(kOne, full, full, {.axis = axis}));
  expect_ok(log_softmax(kOne, full, full, {.axis = axis}));
  expect_ok(softmax_backward(kOne, full, full, full, {.axis = axis}));
  expect_ok(log_softmax_backward(kOne, full, full, full, {.axis = axis}));
  for (const std::int64_t extent : outer) {
    if (extent != 0) continue;  // what there is one of a row is nothing too
    expect_ok(logsumexp(kOne, full, each, {.axis = axis}));
    expect_ok(cross_entropy(kOne, full, target, each, {.axis = axis}));
    expect_ok(cross_entropy_backward(kOne, full, target, {}, each, full, {.axis = axis}));
    return;
  }
}

TEST(GoodInputTest, ZeroRowsAndZeroColumnsDoNothing) {
  float memory[4] = {7, 7, 7, 7};
  for (void* at : {static_cast<void*>(nullptr), static_cast<void*>(memory)}) {
    run_on_nothing(at, {0, 5}, {0});
    run_on_nothing(at, {5, 0}, {5});
    run_on_nothing(at, {0, 0}, {0});
    run_on_nothing(at, {0}, {});
    run_on_nothing(at, {3, 0, 4}, {3, 4}, 1);
    run_on_nothing(at, {3, 0, 4}, {3, 0}, 2);
    run_on_nothing(at, {0, 3, 4}, {0, 4}, 1);
  }
  for (const float v : memory) EXPECT_EQ(v, 7);
}

TEST(GoodInputTest, ZeroColumnsWithRowsApart) {
  const Tensor nothing(nullptr, DType::f32, {4, 0}, {9, 1});
  for (const std::string_view variant : {"", "cpu_serial", "cpu_short", "cpu_row", "cpu_split"}) {
    expect_ok(softmax(kOne, nothing, nothing, {.variant = variant}));
  }
}

TEST(GoodInputTest, NoColumnsSumToNothing) {
  for (const Variant& v : variants(Op::logsumexp)) {
    if (v.device != Device::cpu) continue;
    Values y(DType::f32, {3});
    expect_ok(logsumexp(kOne, {nullptr, DType::f64, {3, 0}}, y.tensor(), {.variant = v.name}));
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(y.get(r), -kInf) << v.name;
  }
  Values lse(DType::f64, {3});
  const Tensor nothing(nullptr, DType::f32, {3, 0});
  expect_ok(softmax(kOne, nothing, nothing, {.lse = lse.tensor()}));
  EXPECT_EQ(lse, Values(DType::f64, {3}, {-kInf, -kInf, -kInf}));
}

TEST(GoodInputTest, ALossOfNoRowsIsZero) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    Values loss(DType::f32, {});
    expect_ok(cross_entropy(kOne, {nullptr, DType::f32, {0, 5}}, {nullptr, DType::i64, {0}},
                            loss.tensor(), {.reduction = reduction}));
    EXPECT_EQ(loss.get(0), 0);
  }
}

TEST(GoodInputTest, ALossOfIgnoredRowsIsZero) {
  const Values x(DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Values target(DType::i64, {2}, {9, 9});
  const Values one(DType::f32, {}, {1});
  Values loss(DType::f32, {}), dx(DType::f32, {2, 3});
  const CrossEntropyOptions options{.ignore_index = 9, .reduction = Reduction::mean};
  expect_ok(cross_entropy(kOne, x.tensor(), target.tensor(), loss.tensor(), options));
  EXPECT_EQ(loss.get(0), 0);
  expect_ok(cross_entropy_backward(kOne, x.tensor(), target.tensor(), {}, one.tensor(), dx.tensor(),
                                   options));
  EXPECT_EQ(dx, Values(DType::f32, {2, 3}, {0, 0, 0, 0, 0, 0}));
}

// A header can promise any number of rows of nothing, even one that 64 bits do not count; a call
// must not walk through them.
TEST(GoodInputTest, ManyRowsOfNothingTakeNoTime) {
  constexpr std::int64_t countable = std::int64_t{1} << 50, half = std::int64_t{3} << 31;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, countable}, {0, half, half}}) {
    for (const std::string_view variant : {"", "cpu_serial", "cpu_short", "cpu_row", "cpu_split"}) {
      EXPECT_EXIT(
          {
            ::alarm(2);
            const Tensor nothing(nullptr, DType::f32, shape);
            const Status status = softmax(kOne, nothing, nothing, {.axis = 0, .variant = variant});
            const bool refused = status.code() == Code::invalid_argument && shape.size() == 3;
            std::_Exit(status.ok() || refused ? 0 : 1);
          },
          testing::ExitedWithCode(0), "")
          << shape.size() << " dimensions, variant=" << variant;
    }
  }
}

// ---- Few --------------------------------------------------------------------------------------

TEST(GoodInputTest, AScalarIsARowOfOne) {
  for (const int axis : {0, -1}) {
    const Values x(DType::f32, {}, {5});
    Values y(DType::f32, {}), lse(DType::f32, {});
    expect_ok(softmax(kOne, x.tensor(), y.tensor(), {.axis = axis, .lse = lse.tensor()}));
    EXPECT_EQ(y.get(0), 1);
    EXPECT_EQ(lse.get(0), 5);
    expect_ok(log_softmax(kOne, x.tensor(), y.tensor(), {.axis = axis}));
    EXPECT_EQ(y.get(0), 0);
    expect_ok(logsumexp(kOne, x.tensor(), y.tensor(), {.axis = axis}));
    EXPECT_EQ(y.get(0), 5);
    const Values target(DType::i32, {}, {0});
    expect_ok(cross_entropy(kOne, x.tensor(), target.tensor(), y.tensor(), {.axis = axis}));
    EXPECT_EQ(y.get(0), 0);
  }
}

TEST(GoodInputTest, EightDimensions) {
  const std::vector<std::int64_t> shape = {1, 2, 1, 3, 1, 2, 2, 1};
  const Values x(DType::f32, shape, numbers(24));
  for (int axis = -8; axis < 8; ++axis) {
    Values y(DType::f32, shape);
    expect_ok(softmax(kOne, x.tensor(), y.tensor(), {.axis = axis}));
    double sum = 0;
    for (std::int64_t i = 0; i < 24; ++i) sum += y.get(i);
    const double rows = 24.0 / static_cast<double>(shape[static_cast<std::size_t>((axis + 8) % 8)]);
    EXPECT_NEAR(sum, rows, 1e-5) << "axis " << axis;
  }
}

// ---- Broadcasts -------------------------------------------------------------------------------

TEST(GoodInputTest, MasksBroadcast) {
  const std::vector<std::int64_t> shape = {2, 3, 4};
  const Values x(DType::f32, shape, numbers(24));
  const std::vector<std::vector<std::int64_t>> smaller = {
      {}, {1}, {4}, {3, 1}, {1, 4}, {3, 4}, {2, 1, 1}, {2, 1, 4}, {1, 3, 1}, {2, 3, 1}, {2, 3, 4}};
  for (const int axis : {2, 1, 0}) {
    for (const auto& part : smaller) {
      std::int64_t size = 1;
      for (const std::int64_t extent : part) size *= extent;
      Values values(DType::f32, part), keep(DType::u8, part);
      for (std::int64_t i = 0; i < size; ++i) {
        values.set(i, static_cast<double>(i % 5) - 1);
        keep.set(i, i % 4 == 1 ? 0 : 1);
      }
      // By hand: index i of x, seen from the right, where a dimension of 1 or none repeats.
      Values whole_values(DType::f32, shape), whole_keep(DType::u8, shape);
      for (std::int64_t i = 0; i < 24; ++i) {
        const std::int64_t at[] = {i / 12, i / 4 % 3, i % 4};
        std::int64_t from = 0;
        for (std::size_t d = 0; d < part.size(); ++d) {
          from = from * part[d] + at[3 - part.size() + d] % part[d];
        }
        whole_values.set(i, values.get(from));
        whole_keep.set(i, keep.get(from));
      }
      EXPECT_EQ(softmax_of(x, shape, {.axis = axis, .mask = additive(values.tensor())}),
                softmax_of(x, shape, {.axis = axis, .mask = additive(whole_values.tensor())}));
      EXPECT_EQ(softmax_of(x, shape, {.axis = axis, .mask = boolean(keep.tensor())}),
                softmax_of(x, shape, {.axis = axis, .mask = boolean(whole_keep.tensor())}));
    }
  }
}

TEST(GoodInputTest, PerRowTensorsMayKeepTheAxisOrBroadcast) {
  const std::vector<std::int64_t> shape = {2, 3, 4};
  const Values x(DType::f32, shape, numbers(24));
  const std::vector<double> six = {0.5, 1, 1.5, 2, 2.5, 3};
  const Values flat(DType::f32, {2, 3}, six), kept(DType::f64, {2, 3, 1}, six);
  EXPECT_EQ(softmax_of(x, shape, {.temperature = flat.tensor()}),
            softmax_of(x, shape, {.temperature = kept.tensor()}));
  EXPECT_EQ(softmax_of(x, shape, {.scale = flat.tensor()}),
            softmax_of(x, shape, {.scale = kept.tensor()}));
  // One a column of the outer shape, one a row of it, and one for all.
  const Values three(DType::f32, {3}, {0.5, 1, 2}), two(DType::f32, {2, 1}, {0.5, 2});
  EXPECT_EQ(
      softmax_of(x, shape, {.temperature = three.tensor()}),
      softmax_of(x, shape,
                 {.temperature = Values(DType::f32, {2, 3}, {0.5, 1, 2, 0.5, 1, 2}).tensor()}));
  EXPECT_EQ(
      softmax_of(x, shape, {.temperature = two.tensor()}),
      softmax_of(x, shape,
                 {.temperature = Values(DType::f32, {2, 3}, {0.5, 0.5, 0.5, 2, 2, 2}).tensor()}));
  EXPECT_EQ(softmax_of(x, shape, {.temperature = Values(DType::f16, {}, {2}).tensor()}),
            softmax_of(x, shape, {.temperature = 2.0}));
  const Values lengths_flat(DType::i32, {2, 3}, {0, 1, 2, 3, 4, 4});
  const Values lengths_kept(DType::i64, {2, 3, 1}, {0, 1, 2, 3, 4, 4});
  EXPECT_EQ(softmax_of(x, shape, {.mask = lengths(lengths_flat.tensor())}),
            softmax_of(x, shape, {.mask = lengths(lengths_kept.tensor())}));
}

TEST(GoodInputTest, ResultsOfOneARowMayKeepTheAxis) {
  const Values x(DType::f32, {2, 3, 4}, numbers(24));
  Values flat(DType::f32, {2, 4}), kept(DType::f32, {2, 1, 4});
  expect_ok(logsumexp(kOne, x.tensor(), flat.tensor(), {.axis = 1}));
  expect_ok(logsumexp(kOne, x.tensor(), kept.tensor(), {.axis = 1}));
  Values y(DType::f32, {2, 3, 4}), lse(DType::f32, {2, 1, 4});
  expect_ok(softmax(kOne, x.tensor(), y.tensor(), {.axis = 1, .lse = lse.tensor()}));
  const Values target(DType::i64, {2, 1, 4}, {0, 1, 2, 0, 1, 2, 0, 1});
  Values loss(DType::f32, {2, 1, 4}), loss_flat(DType::f32, {2, 4});
  expect_ok(cross_entropy(kOne, x.tensor(), target.tensor(), loss.tensor(), {.axis = 1}));
  expect_ok(cross_entropy(kOne, x.tensor(), target.tensor(), loss_flat.tensor(), {.axis = 1}));
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(flat.get(i), kept.get(i));
    EXPECT_EQ(flat.get(i), lse.get(i));
    EXPECT_EQ(loss.get(i), loss_flat.get(i));
    EXPECT_GT(loss.get(i), 0);
  }
}

TEST(GoodInputTest, BothMasksAtOnce) {
  const Values keep(DType::u8, {4}, {1, 0, 1, 1}), length(DType::i32, {1}, {3});
  const Mask both = boolean(keep.tensor()) & lengths(length.tensor()) & causal() & window(1, -1);
  EXPECT_TRUE(both.any());
  EXPECT_TRUE(both.causal);
  EXPECT_EQ(both.window_left, 1);
  EXPECT_EQ(both.window_right, -1);
  const Values x(DType::f32, {1, 4}, {1, 2, 3, 4});
  // The one query is at key 3 and sees keys 2 and 3; the length hides 3.
  EXPECT_EQ(softmax_of(x, {1, 4}, {.mask = both}), Values(DType::f32, {1, 4}, {0, 0, 1, 0}));
  EXPECT_FALSE(Mask{}.any());
}

// ---- Strides ----------------------------------------------------------------------------------

// softmax of x(r, c) = memory[origin + r·row + c·col] into an output of any strides.
void expect_strides_work(std::int64_t row, std::int64_t col, std::int64_t out_row,
                         std::int64_t out_col) {
  constexpr std::int64_t rows = 5, cols = 21;
  SCOPED_TRACE(testing::Message() << row << "," << col << " -> " << out_row << "," << out_col);
  const auto origin = [](std::int64_t a, std::int64_t b) {
    return (a < 0 ? -a * (rows - 1) : 0) + (b < 0 ? -b * (cols - 1) : 0);
  };
  std::vector<float> in(1000), out(1000, 9);
  const std::vector<double> values = numbers(1000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(values[i]);
  const float* x = in.data() + origin(row, col);
  float* y = out.data() + origin(out_row, out_col);
  Values dense(DType::f32, {rows, cols}), expected(DType::f32, {rows, cols});
  for (std::int64_t i = 0; i < rows * cols; ++i) dense.set(i, x[i / cols * row + i % cols * col]);
  expect_ok(softmax(kOne, dense.tensor(), expected.tensor()));
  const ConstTensor from(x, DType::f32, {rows, cols}, {row, col});
  expect_ok(softmax(kOne, from, Tensor(y, DType::f32, {rows, cols}, {out_row, out_col})));
  Values got(DType::f32, {rows, cols});
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    got.set(i, y[i / cols * out_row + i % cols * out_col]);
  }
  expect_near(got, expected);
  std::int64_t untouched = 0;
  for (const float v : out) untouched += v == 9 ? 1 : 0;
  EXPECT_EQ(untouched, 1000 - rows * cols);

  Values sums(DType::f32, {rows}), expected_sums(DType::f32, {rows});
  expect_ok(logsumexp(kOne, from, sums.tensor()));
  expect_ok(logsumexp(kOne, dense.tensor(), expected_sums.tensor()));
  expect_near(sums, expected_sums);
}

TEST(GoodInputTest, AnyStrides) {
  const std::pair<std::int64_t, std::int64_t> outputs[] = {
      {21, 1}, {-21, 1}, {21, -1}, {-30, -1}, {42, 2}, {1, 5}, {-1, 5}, {1, -7}, {45, -2}, {2, 11}};
  for (const auto& [out_row, out_col] : outputs) {
    for (const auto& [row, col] : outputs) expect_strides_work(row, col, out_row, out_col);
    expect_strides_work(0, 1, out_row, out_col);  // one row, seen again and again
    expect_strides_work(1, 0, out_row, out_col);  // one element per row
    expect_strides_work(0, 0, out_row, out_col);
    expect_strides_work(0, -1, out_row, out_col);
  }
}

TEST(GoodInputTest, ThePlanThatRanIsTold) {
  const Values x(DType::f32, {4, 9}, numbers(36));
  for (const Variant& v : variants(Op::softmax)) {
    if (v.device != Device::cpu) continue;
    if (v.name == "cpu_lanes") continue;
    Values y(DType::f32, {4, 9});
    Plan plan;
    expect_ok(softmax(kOne, x.tensor(), y.tensor(), {.variant = v.name, .plan = &plan}));
    EXPECT_EQ(plan.variant, v.name);
    EXPECT_NE(to_string(plan).find(v.name), std::string::npos);
  }
}

}  // namespace
}  // namespace onepass
