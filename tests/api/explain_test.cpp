// A context that asks for an explanation: the op plans, tells, and touches nothing.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "onepass/onepass.hpp"

namespace onepass {
namespace {

TEST(ExplainTest, TellsThePlanAndLeavesTheOutputAlone) {
  std::array<float, 8> x{}, y{};
  y.fill(7);
  Explanation told;
  const Context context = Context::cpu().explaining(told);
  ASSERT_TRUE(
      softmax(context, Tensor(x.data(), DType::f32, {2, 4}), Tensor(y.data(), DType::f32, {2, 4}))
          .ok());
  EXPECT_FALSE(told.plan.variant.empty());
  EXPECT_FALSE(told.reasons.empty());
  EXPECT_EQ(told.least_bytes, 2 * sizeof x);
  EXPECT_GE(told.planned_bytes, told.least_bytes);
  for (const float value : y) EXPECT_EQ(value, 7);
}

TEST(ExplainTest, WhatIsToldIsWhatRunsWhateverRanBefore) {
  std::vector<float> x(1 << 16), y(1 << 16);
  struct Call {
    std::int64_t cols;
    int threads;
  };
  // One differs from the next in its shape, its machine, or neither.
  for (const auto [cols, threads] :
       {Call{4, 1}, {1 << 16, 1}, {1 << 16, 1}, {1 << 16, 2}, {1 << 16, 1}, {4, 1}}) {
    const std::int64_t shape[] = {1, cols};
    const Tensor in(x.data(), DType::f32, shape);
    const Tensor out(y.data(), DType::f32, shape);
    Plan ran;
    Explanation told;
    const Context context = Context::cpu(threads);
    ASSERT_TRUE(softmax(context, in, out, {.plan = &ran}).ok());
    ASSERT_TRUE(softmax(context.explaining(told), in, out).ok());
    EXPECT_EQ(ran, told.plan) << cols << " columns, " << threads << " threads";
  }
}

TEST(ExplainTest, OfAReducedLossToo) {
  std::array<float, 8> x{};
  std::array<std::int64_t, 2> target{};
  float loss = 7;
  Explanation told;
  const CrossEntropyOptions options{.reduction = Reduction::mean};
  ASSERT_TRUE(cross_entropy(Context::cpu().explaining(told), Tensor(x.data(), DType::f32, {2, 4}),
                            Tensor(target.data(), DType::i64, {2}), Tensor(&loss, DType::f32, {}),
                            options)
                  .ok());
  EXPECT_FALSE(told.plan.variant.empty());
  EXPECT_EQ(loss, 7);
}

TEST(ExplainTest, OfWhatIsChosenAndOfANamedVariant) {
  std::array<float, 8> x{}, values{};
  std::array<std::int64_t, 2> indices{};
  indices.fill(7);
  Explanation told;
  ASSERT_TRUE(softmax_topk(Context::cpu().explaining(told), Tensor(x.data(), DType::f32, {2, 4}),
                           Tensor(values.data(), DType::f32, {2, 1}),
                           Tensor(indices.data(), DType::i64, {2, 1}), {.variant = "cpu_unfused"})
                  .ok());
  EXPECT_EQ(told.plan.variant, "cpu_unfused");
  EXPECT_EQ(indices[0], 7);
}

TEST(ExplainTest, OfAMergeOfAttention) {
  std::array<float, 16> a{}, b{}, o{};
  std::array<float, 2> lse{};
  o.fill(7);
  const auto heads = [](auto& values) { return Tensor(values.data(), DType::f32, {2, 8}); };
  const Tensor sums(lse.data(), DType::f32, {2});
  Explanation told;
  ASSERT_TRUE(
      merge_attention(Context::cpu().explaining(told), heads(a), sums, heads(b), sums, heads(o))
          .ok());
  EXPECT_EQ(told.plan.variant, "merge");
  EXPECT_EQ(told.least_bytes, 3 * sizeof a + 2 * sizeof lse);
  for (const float value : o) EXPECT_EQ(value, 7);
}

TEST(ExplainTest, WhatCannotBeIsStillAnError) {
  std::array<float, 8> x{};
  Explanation told;
  const Status status =
      softmax(Context::cpu().explaining(told), Tensor(x.data(), DType::f32, {2, 4}),
              Tensor(x.data(), DType::f32, {4, 2}));
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_TRUE(told.plan.variant.empty());
}

}  // namespace
}  // namespace onepass
