// The same bits every time, by any number of threads and in place.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/number.hpp"
#include "core/problem.hpp"
#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

// Every op once, on the same data each time it is called.
struct Workbench {
  static constexpr std::int64_t rows = 37, cols = 3001;  // enough work for three threads

  explicit Workbench(DType dtype)
      : x(dtype, {rows, cols}, numbers(rows * cols)),
        y(dtype, {rows, cols}, std::vector<double>(rows * cols, 0.0625)),
        dy(dtype, {rows, cols}, numbers(rows * cols, 2)),
        target(DType::i32, {rows}),
        dloss(DType::f32, {rows}, numbers(rows, 3)) {
    for (std::int64_t r = 0; r < rows; ++r) target.set(r, static_cast<double>(r * 80));
  }

  static std::vector<std::int64_t> shape_of(Op op) {
    return traffic(op).writes > 0 ? std::vector{rows, cols} : std::vector{rows};
  }

  Status run(Op op, int threads, std::string_view variant, Values& out, Plan& plan) const {
    const Context context = Context::cpu(threads);
    const SoftmaxOptions options{.variant = variant, .plan = &plan};
    const BackwardOptions backward{.variant = variant, .plan = &plan};
    const CrossEntropyOptions loss{.label_smoothing = 0.1, .variant = variant, .plan = &plan};
    switch (op) {
      case Op::softmax_backward:
        return softmax_backward(context, y.tensor(), dy.tensor(), out.tensor(), backward);
      case Op::log_softmax_backward:
        return log_softmax_backward(context, y.tensor(), dy.tensor(), out.tensor(), backward);
      case Op::cross_entropy:
        return cross_entropy(context, x.tensor(), target.tensor(), out.tensor(), loss);
      case Op::cross_entropy_backward:
        return cross_entropy_backward(context, x.tensor(), target.tensor(), {}, dloss.tensor(),
                                      out.tensor(), loss);
      default: return forward(op, context, x, out, options);
    }
  }

  Values x, y, dy, target, dloss;
};

TEST(PlacementTest, TwentyRunsOfOnePlanGiveTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Workbench bench(dtype);
    for (const Op op : kRowOps) {
      for (const std::string_view variant : {"cpu_row", "cpu_split"}) {
        SCOPED_TRACE(std::string(name(op)) + " " + std::string(variant));
        Values first(dtype, Workbench::shape_of(op));
        Plan plan;
        ASSERT_TRUE(bench.run(op, 3, variant, first, plan).ok());
        EXPECT_EQ(plan.threads, 3);
        EXPECT_EQ(plan.split, variant == "cpu_split" ? 3 : 1);
        for (int repeat = 1; repeat < 20; ++repeat) {
          Values again(dtype, Workbench::shape_of(op));
          Plan same;
          ASSERT_TRUE(bench.run(op, 3, variant, again, same).ok());
          ASSERT_EQ(same, plan) << to_string(same);
          ASSERT_EQ(again, first) << "run " << repeat;
        }
      }
    }
  }
}

TEST(PlacementTest, WholeRowsGiveTheSameBitsWhateverTheThreads) {
  for (const DType dtype : kFloating) {
    const Workbench bench(dtype);
    for (const Op op : kRowOps) {
      SCOPED_TRACE(std::string(name(op)) + " " + std::string(name(dtype)));
      Values alone(dtype, Workbench::shape_of(op));
      Plan plan;
      ASSERT_TRUE(bench.run(op, 1, "cpu_row", alone, plan).ok());
      EXPECT_EQ(plan.threads, 1);
      for (const int threads : {2, 3}) {
        Values shared(dtype, Workbench::shape_of(op));
        ASSERT_TRUE(bench.run(op, threads, "cpu_row", shared, plan).ok());
        EXPECT_EQ(plan.threads, threads);
        EXPECT_EQ(plan.split, 1);
        EXPECT_EQ(shared, alone) << threads << " threads";
      }
    }
  }
}

TEST(PlacementTest, AReducedLossHasTheSameBitsWhateverTheThreads) {
  constexpr std::int64_t rows = 9000, cols = 7;  // more rows than are summed at a time
  const Values x(DType::f32, {rows, cols}, numbers(rows * cols));
  Values target(DType::i64, {rows});
  for (std::int64_t r = 0; r < rows; ++r)
    target.set(r, static_cast<double>(r % 5 == 3 ? -100 : r % 7));
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    Values alone(DType::f64, {});
    Plan plan;
    ASSERT_TRUE(cross_entropy(Context::cpu(1), x.tensor(), target.tensor(), alone.tensor(),
                              {.reduction = reduction, .plan = &plan})
                    .ok());
    EXPECT_EQ(plan.threads, 1);
    EXPECT_GT(alone.get(0), reduction == Reduction::sum ? 7000 : 1);
    for (const int threads : {2, 3}) {
      Values shared(DType::f64, {});
      ASSERT_TRUE(cross_entropy(Context::cpu(threads), x.tensor(), target.tensor(), shared.tensor(),
                                {.reduction = reduction, .plan = &plan})
                      .ok());
      EXPECT_EQ(plan.threads, threads);
      EXPECT_EQ(shared, alone) << threads << " threads";
    }
  }
}

TEST(PlacementTest, InPlaceGivesTheBitsOfOutOfPlace) {
  constexpr std::int64_t rows = 5, cols = 2500;
  const std::vector<std::int64_t> shape = {rows, cols};
  const Values length(DType::i32, {rows}, {0, 100, 2100, 2499, 2500});
  const Values target(DType::i64, {rows}, {0, 50, 2000, 2499, -100});
  const Values dloss(DType::f32, {rows}, {1, 2, 3, 4, 5});
  const Context context = Context::cpu(1);
  for_each_isa([&] {
    for (const DType dtype : kFloating) {
      SCOPED_TRACE(name(dtype));
      const Values x(dtype, shape, numbers(rows * cols));
      const Values y(dtype, shape, std::vector<double>(rows * cols, 0.03125));
      const Values dy(dtype, shape, numbers(rows * cols, 2));
      // Runs op(inputs, out), then again with `out` laid over the input `over`.
      const auto expect_same = [&](std::string_view what, const Values& over, auto op) {
        SCOPED_TRACE(what);
        Values apart(dtype, shape);
        Status status = op(over, apart);
        ASSERT_TRUE(status.ok()) << status.message();
        Values both = over;
        status = op(both, both);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(both, apart);
      };
      for (const Mask& mask : {Mask{}, lengths(length.tensor())}) {
        for (const Op op : {Op::softmax, Op::log_softmax}) {
          for (const Variant& v : variants(op)) {
            if (v.device != Device::cpu) continue;
            if (v.name == "cpu_short" || v.name == "cpu_lanes") continue;
            expect_same(v.name, x, [&](const Values& in, Values& out) {
              return forward(op, context, in, out, {.mask = mask, .variant = v.name});
            });
          }
        }
        const BackwardOptions options{.softcap = 6, .mask = mask, .x = x.tensor()};
        expect_same("dx over dy", dy, [&](const Values& in, Values& out) {
          return softmax_backward(context, y.tensor(), in.tensor(), out.tensor(), options);
        });
        expect_same("dx over y", y, [&](const Values& in, Values& out) {
          return log_softmax_backward(context, in.tensor(), dy.tensor(), out.tensor(), options);
        });
        expect_same("dx over x", x, [&](const Values& in, Values& out) {
          BackwardOptions own = options;
          own.x = in.tensor();
          return softmax_backward(context, y.tensor(), dy.tensor(), out.tensor(), own);
        });
        expect_same("dx over logits", x, [&](const Values& in, Values& out) {
          return cross_entropy_backward(context, in.tensor(), target.tensor(), {}, dloss.tensor(),
                                        out.tensor(), {.mask = mask, .label_smoothing = 0.1});
        });
      }
      Values short_x(dtype, {40, 21}, numbers(40 * 21));
      for (const int axis : {1, 0}) {  // cpu_short, cpu_lanes
        Values apart(dtype, {40, 21}), both = short_x;
        ASSERT_TRUE(forward(Op::softmax, context, short_x, apart, {.axis = axis}).ok());
        ASSERT_TRUE(forward(Op::softmax, context, both, both, {.axis = axis}).ok());
        EXPECT_EQ(both, apart) << "axis " << axis;
      }
    }
  });
}

}  // namespace
}  // namespace onepass
