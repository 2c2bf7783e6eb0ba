// Drivers: the arrays that they name are those that a call has, and what the library refuses
// is not described.
#include "cli/ops/driver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/ops/call.hpp"
#include "tests/support/cases.hpp"

namespace onepass::cli {
namespace {

TEST(DriverTest, TheArraysOfACallAreThoseThatItsDriverNames) {
  for (const std::string_view text :
       {"softmax 3x5 scale=row mask=additive+lengths lse", "log_softmax 3x5 in_place",
        "logsumexp 2x3x5 axis=1 temperature=row", "softmax_backward 3x5 softcap=2",
        "log_softmax_backward 3x5 in_place", "cross_entropy 3x5 weights reduction=mean lse",
        "cross_entropy_backward 3x5 lse in_place", "cross_entropy_backward 3x5 loss probabilities",
        "topk 3x5 k=2 lse target index=i32", "sample 3x5 mask=boolean broadcast",
        "gate 3x8 k=2 bias", "attention 2x4x3x8 kv_heads=2 bshd lse mask=additive",
        "attention 2x4x3x8 offsets alibi sinks", "attention 2x4x1x8 keys=40 page=16"}) {
    const Case c = parsed(text);
    Call call;
    ASSERT_TRUE(call.make(c).ok()) << text;
    std::set<array::Id> named;
    for (const ArraySpec& spec : driver_of(c.op).arrays(c)) {
      EXPECT_TRUE(named.insert(spec.id).second) << text << ": " << name(spec.id) << " twice";
      const Tensor& t = call[spec.id].tensor();
      EXPECT_EQ(t.dtype, spec.dtype) << text << ": " << name(spec.id);
      EXPECT_TRUE(std::ranges::equal(spec.shape, std::span(t.shape).first(spec.shape.size())))
          << text << ": " << name(spec.id);
      EXPECT_EQ(call.writes(spec.id), spec.access != Access::input) << name(spec.id);
    }
    for (const array::Id id : kAllArrays) EXPECT_EQ(call[id].present(), named.contains(id)) << text;
    EXPECT_TRUE(call.out().present()) << text;
    Problem problem;
    EXPECT_TRUE(describe(c, problem).ok()) << text;
    EXPECT_EQ(problem.op, c.op) << text;
  }
}

TEST(DriverTest, ACallThatTheLibraryRefusesIsNotDescribed) {
  for (const auto& [text, message] :
       {std::pair{"softmax 6x9 weights", "weights: softmax has none"},
        std::pair{"topk 4x4 k=9", "values: K = 9 is not between 1 and the 4 elements of a row"},
        std::pair{"sample 4x4 temperature=-1", "temperature: -1 is not 0 or a positive number"},
        std::pair{"attention 2x3x5x64 kv_heads=2", "k: 2 heads do not divide the 3 of q"},
        std::pair{"softmax 1073741824x2147483648 f64",
                  "problem: 'softmax 1073741824x2147483648 f64' spans more bytes than 2^62"}}) {
    Problem problem;
    const Status status = describe(parsed(text), problem);
    EXPECT_EQ(status.code(), Code::invalid_argument) << text;
    EXPECT_EQ(status.message(), message) << text;
  }
}

}  // namespace
}  // namespace onepass::cli
