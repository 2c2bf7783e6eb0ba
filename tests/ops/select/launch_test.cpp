// Which launches are chosen for what selects from rows on a GPU, and what is refused.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <cmath>

#include "dispatch/choose.hpp"
#include "ops/select/args.hpp"
#include "ops/select/gpu/policy.hpp"
#include "tests/ops/select/problems.hpp"

namespace onepass {
namespace {

using namespace test;

const gpu_select::SelectLaunch& select_of(const Decision& decision) {
  return std::get<gpu_select::SelectLaunch>(decision.launch);
}
const gpu_select::StreamLaunch& stream_of(const Decision& decision) {
  return std::get<gpu_select::StreamLaunch>(decision.launch);
}

// Sixteen on a processor, whatever rows it has; fewer where these are short.
TEST(GpuSelectTest, WarpsOfARow) {
  const auto warps = [](std::int64_t rows, std::int64_t cols, DType dtype = DType::bf16) {
    const Decision decision = choose(topk(rows, cols, 50, dtype), h200());
    EXPECT_EQ(decision.variant(), "gpu_stream");
    return stream_of(decision).warps();
  };
  EXPECT_EQ(warps(128, 128256), 16);
  EXPECT_EQ(warps(132, 128256, DType::f32), 16);
  EXPECT_EQ(warps(133, 128256), 8);
  EXPECT_EQ(warps(640, 128256), 3);
  EXPECT_EQ(warps(1024, 128256), 2);
  EXPECT_EQ(warps(1057, 128256), 1);
  EXPECT_EQ(warps(4096, 32000), 1);
  EXPECT_EQ(warps(132, 16384), 8);
  EXPECT_EQ(warps(132, 4096), 2);
  EXPECT_EQ(warps(132, 4096, DType::f32), 4);
  EXPECT_EQ(warps(1056, 8192), 2);
  EXPECT_EQ(warps(1056, 4096), 1);
  // As many rows at once as their warps leave room for: a processor has 228 KB, of which each
  // block loses one.
  const Decision two = choose(topk(1024, 128256, 50), h200());
  EXPECT_LE(8 * (stream_of(two).shared_bytes + 128 + 1024), 233472U);
  // Where memory is short, fewer; rows of a processor are still there at once.
  const Decision small = choose(topk(100, 128256, 50), with_shared(89, 101376));
  const Decision ampere = choose(topk(200, 128256, 50), with_shared(80, 166912));
  EXPECT_EQ(stream_of(small).warps(), 7);
  EXPECT_EQ(stream_of(ampere).warps(), 6);
}

// Where rows are fewer than processors, clusters: of two, or of four small blocks or few.
TEST(GpuSelectTest, ClustersThatStream) {
  const auto launch = [](std::int64_t rows, std::int64_t cols, std::int64_t k, DType dtype) {
    const Plan plan = choose(topk(rows, cols, k, dtype), h200()).plan();
    return std::string(plan.variant) + ":" + std::to_string(plan.split) + ":" +
           std::to_string(plan.threads);
  };
  EXPECT_EQ(launch(64, 152064, 256, DType::bf16), "gpu_stream:2:512");
  EXPECT_EQ(launch(64, 152064, 256, DType::f32), "gpu_stream:2:512");
  EXPECT_EQ(launch(66, 128256, 50, DType::f32), "gpu_stream:2:512");
  EXPECT_EQ(launch(66, 128256, 50, DType::bf16), "gpu_stream:2:256");
  EXPECT_EQ(launch(67, 128256, 50, DType::bf16), "gpu_stream:1:512");
  EXPECT_EQ(launch(34, 128256, 50, DType::bf16), "gpu_stream:2:256");
  EXPECT_EQ(launch(33, 128256, 50, DType::bf16), "gpu_stream:4:256");
  EXPECT_EQ(launch(33, 128256, 50, DType::f32), "gpu_stream:2:512");
  EXPECT_EQ(launch(33, 128256, 200, DType::bf16), "gpu_stream:2:512");
  EXPECT_EQ(launch(24, 262144, 50, DType::f32), "gpu_stream:4:512");
  EXPECT_EQ(launch(24, 262144, 200, DType::bf16), "gpu_stream:4:512");
  // Fewer rows than that are cut into more parts; of one stage each these are quicker, too.
  EXPECT_EQ(launch(10, 262144, 50, DType::f32), "gpu_cluster:8:512");
  EXPECT_EQ(launch(16, 128256, 50, DType::bf16), "gpu_cluster:8:256");
  // Short ones fit a guess.
  EXPECT_EQ(launch(33, 32000, 128, DType::f32), "gpu_guess:4:256");
}

TEST(GpuSelectTest, WhatIsChosen) {
  EXPECT_EQ(choose(topk(1, 128256, 50), h200()).variant(), "gpu_guess");
  EXPECT_EQ(choose(topk(1, 128256, 50), h200()).plan().split, 16);
  EXPECT_EQ(choose(topk(8, 128256, 64), h200()).plan().split, 16);
  EXPECT_EQ(choose(topk(8, 128256, 65), h200()).variant(), "gpu_cluster");  // a fourth does not fit
  EXPECT_EQ(choose(topk(9, 32000, 50), h200()).plan().split, 4);
  EXPECT_EQ(choose(topk(33, 32000, 128), h200()).variant(), "gpu_guess");
  EXPECT_EQ(choose(topk(34, 32000, 128), h200()).variant(), "gpu_stream");
  EXPECT_EQ(choose(topk(33, 32000, 129), h200()).variant(), "gpu_stream");
  EXPECT_EQ(choose(topk(33, 32000, 257), h200()).variant(), "gpu_cluster");
  EXPECT_EQ(choose(topk(1, 140000, 50), h200()).variant(), "gpu_cluster");
  EXPECT_EQ(choose(topk(66, 128256, 50), without_clusters()).variant(), "gpu_grid");
  EXPECT_EQ(choose(topk(67, 128256, 50), h200()).variant(), "gpu_stream");
  EXPECT_EQ(choose(topk(528, 1000, 50), h200()).variant(), "gpu_block");
  EXPECT_EQ(choose(topk(529, 1000, 50), h200()).variant(), "gpu_stream");
  EXPECT_EQ(choose(topk(4096, 32000, 256), h200()).variant(), "gpu_stream");
  EXPECT_EQ(choose(topk(4096, 32000, 257), h200()).variant(), "gpu_block");
  EXPECT_EQ(choose(topk(1, 128256, 50), without_clusters()).variant(), "gpu_grid");
  EXPECT_EQ(choose(topk(1, 20000000, 50), h200()).variant(), "gpu_grid");
  EXPECT_EQ(choose(topk(4, 9000, 5000), h200()).variant(), "gpu_sort");
  EXPECT_EQ(choose({.op = Op::gate, .rows = 8192, .cols = 256, .k = 8}, h200()).variant(),
            "gpu_warp");
  EXPECT_EQ(choose(topk(65536, 1000, 5), h200()).variant(), "gpu_warp");
  EXPECT_EQ(choose(topk(65536, 1000, 50), h200()).variant(), "gpu_stream");
  // A sample's candidates stream where one top_k says how many they are, which it does unless p.k
  // is a usual number or all.
  const auto sample = [](std::int64_t cols, std::int64_t k) {
    return Problem{.op = Op::sample, .rows = 1024, .cols = cols, .k = k};
  };
  EXPECT_EQ(choose(sample(128256, 64), h200()).variant(), "gpu_stream");
  EXPECT_EQ(choose(sample(128256, kUnlessAsked), h200()).variant(), "gpu_block");
  EXPECT_EQ(choose(sample(100, 100), h200()).variant(), "gpu_block");
  Problem one = sample(128256, 64);
  one.rows = 1;
  EXPECT_EQ(choose(one, h200()).variant(), "gpu_guess");
  one.k = kUnlessAsked;
  EXPECT_EQ(choose(one, h200()).variant(), "gpu_cluster");
  EXPECT_LT(gpu_select::kMostSampleStream, kUnlessAsked);
  EXPECT_EQ(choose(sample(128256, 129), h200()).variant(), "gpu_block");
  // Small blocks where rows are many, so that one selects while others read.
  EXPECT_LT(choose(sample(128256, 129), h200()).plan().threads, gpu_select::kMostThreads);
}

// How often one of the blocks has more of the K than it sends, if they are anywhere in the row.
TEST(GpuSelectTest, AGuessIsSeldomWrong) {
  for (const int split : {4, 16}) {
    const auto k = static_cast<int>(gpu_select::most_guessed(split));
    const double own = 1.0 / split;
    double more = 0;
    for (int i = gpu_select::kGuessKeys / split + 1; i <= k; ++i) {
      const double ways = std::lgamma(k + 1) - std::lgamma(i + 1) - std::lgamma(k - i + 1);
      more += std::exp(ways + i * std::log(own) + (k - i) * std::log1p(-own));
    }
    EXPECT_LT(split * more, 1.0 / 200000) << split;
  }
}

TEST(GpuSelectTest, StagesAreShortWhereBlocksShareAProcessor) {
  const auto packs = [](const Problem& p) {
    const Decision decision = choose(p, h200());
    return select_of(decision).packs;
  };
  EXPECT_EQ(packs(topk(128, 128256, 300, DType::f32)), gpu_select::kManyPacks);
  EXPECT_EQ(packs(topk(1, 128256, 50, DType::f32)), gpu_select::kManyPacks);
  EXPECT_EQ(packs(topk(1, 128256, 50, DType::bf16)), gpu_select::kFewPacks);  // one stage is all
  EXPECT_EQ(packs(topk(512, 32000, 300, DType::f32)), gpu_select::kFewPacks);
  // 62 of the short ones.
  EXPECT_EQ(packs(topk(512, 513024, 300, DType::f32)), gpu_select::kManyPacks);
  // Eight blocks of 128 threads at a time, each with what is not in the plan and what the
  // system keeps of it.
  constexpr std::size_t kBeside = 1104 + 1024;
  const Problem many = topk(1024, 128256, 64, DType::bf16);
  EXPECT_LE(8 * (gpu_select::block(many, h200()).shared_bytes + kBeside), std::size_t{228} << 10);
}

TEST(GpuSelectTest, ManyRowsAreSortedInTurns) {
  const Problem p = topk(100000, 60000, 60000);
  const Plan plan = choose(p, h200()).plan();
  EXPECT_LE(plan.scratch_bytes, std::size_t{256} << 20);
  EXPECT_LT(plan.blocks, p.rows);
  EXPECT_GE(plan.blocks, 1);
}

TEST(GpuSelectTest, WhatCannotRunSaysWhy) {
  Decision decision;
  Problem p = topk(4, 9000, 5000);
  EXPECT_NE(plan_variant("gpu_block", p, h200(), decision).message().find("at most 2048"),
            std::string::npos);
  p = topk(4, 9000, 2048);
  EXPECT_NE(plan_variant("gpu_cluster", p, h200(), decision).message().find("at most 2047"),
            std::string::npos);
  p = topk(4, 9000, 50);
  EXPECT_NE(plan_variant("gpu_cluster", p, without_clusters(), decision).message().find("clusters"),
            std::string::npos);
  // A launch of theirs, too.
  const Status none = plan_variant("gpu_cluster:4:256", p, without_clusters(), decision);
  EXPECT_EQ(none.code(), Code::unsupported);
  EXPECT_NE(none.message().find("clusters"), std::string::npos);
  const Status many = plan_variant("gpu_stream:1:64", topk(4, 9000, 257), h200(), decision);
  EXPECT_EQ(many.code(), Code::unsupported);
  EXPECT_NE(many.message().find("at most 256"), std::string::npos);
  EXPECT_TRUE(plan_variant("gpu_stream:1:64", topk(4, 9000, 200), h200(), decision).ok());
  EXPECT_FALSE(plan_variant("gpu_stream:1:32", topk(4, 9000, 200), h200(), decision).ok());
  EXPECT_TRUE(plan_variant("gpu_stream:4:512", topk(4, 9000, 50), h200(), decision).ok());
  EXPECT_FALSE(
      plan_variant("gpu_stream:2:64", topk(4, 9000, 50), without_clusters(), decision).ok());
  EXPECT_NE(
      plan_variant("gpu_guess", topk(4, 900000, 50), h200(), decision).message().find("registers"),
      std::string::npos);
  EXPECT_NE(
      plan_variant("gpu_guess", topk(4, 9000, 129), h200(), decision).message().find("at most 128"),
      std::string::npos);
  EXPECT_NE(
      plan_variant("gpu_guess", topk(4, 3000, 50), h200(), decision).message().find("every thread"),
      std::string::npos);
  EXPECT_TRUE(plan_variant("gpu_guess", topk(40, 30000, 50), h200(), decision).ok());
  for (const char* name : {"gpu_cluster:3:512",
                           "gpu_cluster:64:512",
                           "gpu_block:1:100",
                           "gpu_block:2:256",
                           "gpu_grid:0:512",
                           "gpu_block:1:2000000000",
                           "gpu_cluster:2000000000:512",
                           "gpu_grid:4",
                           "gpu_block:4",
                           "gpu_guess:8:256",
                           "gpu_guess:16:512",
                           "gpu_guess:0:256",
                           "gpu_guess:2000000000:256",
                           "gpu_stream:3:64",
                           "gpu_stream:8:64",
                           "gpu_stream:2:32",
                           "gpu_stream:1:16",
                           "gpu_stream:1:544",
                           "gpu_stream:1:2000000000",
                           "gpu_stream:1:40"}) {
    EXPECT_EQ(plan_variant(name, p, h200(), decision).code(), Code::invalid_argument) << name;
  }
  Reasons reasons;
  p = {.op = Op::sample, .rows = 5, .cols = 2000, .k = 8, .in = DType::f64};
  EXPECT_TRUE(choose(p, h200(), &reasons).variant().empty());
  EXPECT_NE(reasons.back().find("f32, f16 and bf16"), std::string::npos);
  p = {.op = Op::gate, .rows = 5, .cols = 2000, .k = 8};
  EXPECT_TRUE(choose(p, h200(), &reasons).variant().empty());
  EXPECT_NE(reasons.back().find("1024 experts"), std::string::npos);
}

TEST(GpuSelectTest, OneKernelHasAllRowsInF64) {
  for (const std::int64_t rows : {1, 7, 100000}) {
    for (const std::int64_t cols : {1, 300, 128256}) {
      for (const std::int64_t k : {std::int64_t{1}, ceil_div(cols, 2), cols}) {
        Problem p = topk(rows, cols, k, DType::f64);
        for (const Op op : {Op::topk, Op::gate}) {
          p.op = op;
          const Plan plan = choose(p, without_clusters()).plan();
          EXPECT_EQ(plan.variant, "gpu_wide");
          EXPECT_GE(plan.blocks, 1);
          EXPECT_LE(plan.blocks, rows);
          EXPECT_GE(plan.scratch_bytes,
                    static_cast<std::size_t>(plan.blocks * k * gpu_select::kEntryBytes));
          EXPECT_LE(plan.scratch_bytes, std::size_t{256} << 20);
        }
      }
    }
  }
  Decision decision;
  EXPECT_NE(
      plan_variant("gpu_wide", topk(4, 9000, 9), h200(), decision).message().find("takes f64"),
      std::string::npos);
}

}  // namespace
}  // namespace onepass
