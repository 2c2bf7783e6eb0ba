// The dispatcher is told the same by a problem string as by the call it stands for.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cli/ops/call.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "runtime/host.hpp"
#include "tests/support/cases.hpp"
#include "tests/support/problem.hpp"

namespace onepass::cli {
namespace {

// What the library plans when the case is run, beside what its string says it would.
std::string planned_otherwise(const Case& c) {
  Call call;
  if (Status made = call.make(c); !made.ok()) return "make: " + made.message();
  EXPECT_TRUE(call.reset().ok());
  Plan ran;
  if (Status status = call.run(Context::cpu(c.threads), c.variant, &ran); !status.ok()) {
    return "run: " + status.message();
  }
  const Plan expected = choose(problem_of(c), this_host(c.threads)).plan();
  if (ran == expected) return {};
  return to_string(c) + ": ran " + to_string(ran) + ", the string says " + to_string(expected);
}

TEST(ProblemOfTest, SaysWhatTheLibraryFindsOut) {
  for (const std::string_view text : {"softmax 40x64",
                                      "softmax 40x64 f16:f32",
                                      "softmax 40x64 f64",
                                      "softmax 40x64 step=2",
                                      "softmax 40x64 pad=3 offset=1",
                                      "softmax 40x64 axis=0",
                                      "softmax 40x64 axis=0 step=2",
                                      "softmax 40x64 axis=0 pad=7",
                                      "softmax 5x6x7 axis=1",
                                      "softmax 5x6x7 axis=0",
                                      "softmax 5x6x1 axis=1",
                                      "softmax 5x6x1 axis=0",
                                      "softmax 6x1x1 axis=0",
                                      "softmax 6x1x1 axis=0 pad=2",
                                      "softmax 1x6x5 axis=1",
                                      "softmax 6x1 axis=1",
                                      "softmax 1x64 axis=0",
                                      "softmax 64",
                                      "softmax 64 step=3",
                                      "softmax 40x64 in_place",
                                      "softmax 40x64 lse",
                                      "softmax 40x64 scale=2",
                                      "softmax 40x64 scale=row",
                                      "softmax 40x64 temperature=2",
                                      "softmax 40x64 temperature=row",
                                      "softmax 40x64 softcap=9",
                                      "softmax 40x64 mask=additive",
                                      "softmax 40x64 mask=boolean broadcast",
                                      "softmax 40x64 mask=lengths",
                                      "softmax 40x64 mask=causal",
                                      "softmax 40x64 window=4,-1",
                                      "softmax 40x64 window=-1,0",
                                      "softmax 40x64 axis=0 mask=causal",
                                      "softmax 40x64 axis=0 lse",
                                      "softmax 1x40000 threads=2",
                                      "softmax 0x5",
                                      "softmax 5x0",
                                      "log_softmax 40x64 axis=0",
                                      "log_softmax 40x64",
                                      "logsumexp 40x64 axis=0",
                                      "logsumexp 40x64 f64:f16",
                                      "softmax_backward 40x64",
                                      "softmax_backward 40x64 softcap=3",
                                      "log_softmax_backward 40x64 axis=0",
                                      "cross_entropy 40x64 lse",
                                      "cross_entropy 40x64 reduction=mean ignore",
                                      "cross_entropy_backward 40x64 lse",
                                      "cross_entropy_backward 40x64 in_place smoothing=0.1"}) {
    EXPECT_EQ(planned_otherwise(parsed(text)), "");
  }
}

// Rows worth cutting, and outputs large enough to be streamed where that pays.
TEST(ProblemOfTest, SaysWhatTheLibraryFindsOutForLargeOnesSlow) {
  for (const std::string_view text :
       {"softmax 9x8000 threads=4", "softmax 1x40000 threads=1", "softmax 2x40000 threads=3 bf16",
        "cross_entropy 1x40000 threads=2", "softmax_backward 1x40000 threads=2 in_place",
        "softmax 1400x1000", "softmax 1400x1000 in_place", "softmax 1400x1000 step=2",
        "softmax_backward 700x2000 f16:f32", "cross_entropy_backward 1400x1000 reduction=sum"}) {
    EXPECT_EQ(planned_otherwise(parsed(text)), "");
  }
}

RC_GTEST_PROP(ProblemOfTest, SaysWhatTheLibraryFindsOutForAnyLayout, ()) {
  Case c{.op = *mostly(Op::softmax, rc::gen::elementOf(kRowOps)), .shape = *any_shape(4, 9)};
  const int rank = static_cast<int>(c.shape.size());
  c.axis = *rc::gen::inRange(-rank, rank);
  c.in = *rc::gen::elementOf(kFloating);
  c.out = *mostly(c.in, rc::gen::elementOf(kFloating));
  if (*seldom()) {  // without options layouts decide
    c.scale = *mostly(1.0, rc::gen::just(0.5));
    c.temperature_rows = *seldom();
    c.additive = *seldom();
    c.causal = *seldom();
    c.window_right = *mostly<std::int64_t>(-1, rc::gen::just<std::int64_t>(2));
    c.lse = c.op != Op::logsumexp && *seldom();
  }
  const bool per_row = c.op == Op::logsumexp || c.op == Op::cross_entropy;
  c.in_place = !per_row && c.in == c.out && *seldom();
  c.pad = *mostly<std::int64_t>(0, rc::gen::just<std::int64_t>(3));
  c.step = *mostly<std::int64_t>(1, rc::gen::just<std::int64_t>(2));
  c.offset = *mostly<std::int64_t>(0, rc::gen::just<std::int64_t>(1));
  c.threads = *rc::gen::inRange(0, 4);
  const std::string otherwise = planned_otherwise(c);
  if (!otherwise.empty()) RC_FAIL(otherwise);
}

}  // namespace
}  // namespace onepass::cli
