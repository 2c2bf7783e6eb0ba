// What a table of measurements comes to.
// Not under sanitizers: numbers in, numbers out.
#include "cli/measure/summary.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace onepass::cli {
namespace {

Row row(const char* problem, const char* variant, const char* role, double time,
        bool chosen = false) {
  Row row;
  row.op = "softmax";
  row.problem = problem;
  row.variant = variant;
  row.role = role;
  row.median_us = time;
  row.chosen = chosen;
  row.verified = true;
  return row;
}

TEST(SummaryTest, OneSentencePerOp) {
  std::vector<Row> rows = {
      row("a", "cpu_row", "ship", 10, true), row("a", "cpu_serial", "teach", 5),
      row("a", "onednn", "peer", 20),        row("a", "copy", "peer", 1),
      row("b", "cpu_row", "ship", 10, true), row("b", "onednn", "peer", 80)};
  EXPECT_EQ(summary(rows),
            "softmax: 4.00x onednn in geometric mean over 2 problems, least 2.00x; all 3 results "
            "verified.\n");
  // The quickest peer of each problem counts.
  rows.push_back(row("b", "other", "peer", 20));
  rows.push_back(row("b", "slow", "peer", 90));
  EXPECT_EQ(summary(rows),
            "softmax: 2.00x the quickest peer in geometric mean over 2 problems, least 2.00x; "
            "all 3 results verified.\n");
  rows.push_back(row("c", "cpu_row", "ship", 10, true));
  rows.back().op = "topk";
  rows.back().verified = false;
  EXPECT_TRUE(summary(rows).ends_with("verified.\ntopk: 1 of 1 results WRONG.\n")) << summary(rows);
}

TEST(SummaryTest, WithoutAPeerOrAnythingOfOurs) {
  EXPECT_EQ(summary(std::vector<Row>{}), "");
  EXPECT_EQ(summary(std::vector{row("a", "copy", "peer", 1)}), "");
  EXPECT_EQ(summary(std::vector{row("a", "cpu_row", "ship", 1, true), row("a", "copy", "peer", 1)}),
            "softmax: the result verified.\n");
}

}  // namespace
}  // namespace onepass::cli
