// Problems of attention as text: what is printed is what is parsed, the dispatcher is told the same
// by a string as by the call it stands for, and live pairs are counted as they are.
#include "cli/problem/sequences.hpp"

#include <gtest/gtest.h>

#include "cli/ops/call.hpp"
#include "dispatch/choose.hpp"
#include "oracle/oracle.hpp"
#include "tests/support/problem.hpp"

namespace onepass::cli {
namespace {

std::vector<Case> workload(const std::string& name) {
  std::vector<Case> cases;
  const std::string path = ONEPASS_SOURCE_DIR "/workloads/" + name;
  const Status status = read_workload(path, Op::attention, cases);
  EXPECT_TRUE(status.ok()) << status.message();
  return cases;
}

Case parsed(std::string_view text) {
  Case c{.op = Op::attention};
  const Status status = parse_case(text, c);
  EXPECT_TRUE(status.ok()) << status.message();
  return c;
}

TEST(AttentionCaseTest, WhatIsPrintedIsWhatIsParsed) {
  for (const char* name :
       {"test_attention.txt", "test_attention_f64.txt", "test_attention_backward.txt",
        "perf_attention.txt", "perf_attention_walk.txt", "perf_attention_backward_walk.txt",
        "perf_attention_cpu.txt"}) {
    for (const Case& c : workload(name)) EXPECT_EQ(parsed(to_string(c)), c) << to_string(c);
  }
}

TEST(AttentionCaseTest, WhatIsLeftOutIsUsual) {
  const Case c = parsed("2x6x5x64 f16");
  EXPECT_EQ(c.keys, 5);
  EXPECT_EQ(c.kv_heads, 6);
  EXPECT_EQ(c.dim_v, 64);
  EXPECT_EQ(c.scale, 0.125);
  EXPECT_EQ(to_string(c), "attention 2x6x5x64 f16");
  EXPECT_EQ(to_string(parsed("2x6x5x64 f16 scale=1")), "attention 2x6x5x64 f16 scale=1");
}

TEST(AttentionCaseTest, MistakesHaveTheirSentence) {
  for (const char* text : {"2x6x64 f32", "2x6x5x64 f32 axis=1", "2x6x5x64 f32 temperature=2",
                           "2x6x5x64 f32 in_place", "2x6x5x64 f32 page=0", "2x6x5x64 keys=x"}) {
    Case c{.op = Op::attention};
    const Status status = parse_case(text, c);
    EXPECT_EQ(status.code(), Code::invalid_argument) << text;
    EXPECT_TRUE(status.message().starts_with("problem: ")) << status.message();
  }
}

TEST(AttentionCaseTest, SaysWhatTheLibraryFindsOut) {
  for (const Case& c : workload("test_attention.txt")) {
    Call call;
    ASSERT_TRUE(call.make(c).ok()) << to_string(c);
    Machine machine{};
    ASSERT_TRUE(machine_of(c, machine).ok());
    Plan ran;
    ASSERT_TRUE(call.run(context_of(c), "", &ran).ok()) << to_string(c);
    EXPECT_EQ(ran, choose(problem_of(c), machine).plan()) << to_string(c);
  }
}

TEST(AttentionCaseTest, LivePairsAreThoseThatNoMaskHides) {
  for (const Case& c : workload("test_attention.txt")) {
    const Sequences s = sequences_of(c);
    double pairs = 0;
    for (std::size_t b = 0; b < s.queries.size(); ++b) {
      const std::int64_t queries = s.queries[b], keys = s.lengths[b];
      for (std::int64_t q = 0; q < queries; ++q) {
        for (std::int64_t t = 0; t < keys; ++t) {
          const bool live =
              (!c.causal || oracle::causal_keeps(q, t, queries, keys)) &&
              oracle::window_keeps(q, t, queries, keys, c.window_left, c.window_right);
          pairs += live ? static_cast<double>(c.shape[1]) : 0;
        }
      }
    }
    EXPECT_EQ(live_pairs(c), pairs) << to_string(c);
  }
  EXPECT_EQ(attention_driver.flops(parsed("1x2x4x8 f32")), 4.0 * 2 * 16 * 8);
  EXPECT_EQ(attention_driver.flops(parsed("1x2x4x8 f32 causal")), 4.0 * 2 * 10 * 8);
}

}  // namespace
}  // namespace onepass::cli
