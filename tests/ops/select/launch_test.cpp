// The launches of what chooses from rows on a GPU: that they hold for every shape, and which are
// chosen.
// Not under sanitizers: plans are pure functions.
#include "dispatch/machines.hpp"
#include "ops/select/gpu/policy.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "dispatch/choose.hpp"
#include "ops/select/args.hpp"

namespace onepass {
namespace {

const Machine& h200() { return *find_machine("h200"); }

Machine without_clusters() {
  Machine m = h200();
  m.gpu.sm = 80;
  return m;
}

// Less shared memory a block: an A100's, and that of GPUs for the desk.
Machine with_shared(int sm, int bytes) {
  Machine m = h200();
  m.gpu.sm = sm;
  m.gpu.block_shared = bytes;
  return m;
}

Problem topk(std::int64_t rows, std::int64_t cols, std::int64_t k, DType in = DType::f32) {
  return {.op = Op::topk, .rows = rows, .cols = cols, .k = k, .in = in};
}

std::string text_of_case(const Decision& decision, const Problem& p) {
  return to_string(decision.plan()) + " of " + std::to_string(p.rows) + "x" +
         std::to_string(p.cols) + " k " + std::to_string(p.k);
}

const gpu_choose::SelectLaunch& select_of(const Decision& decision) {
  return std::get<gpu_choose::SelectLaunch>(decision.launch);
}
const gpu_choose::StreamLaunch& stream_of(const Decision& decision) {
  return std::get<gpu_choose::StreamLaunch>(decision.launch);
}

// What every kernel counts on.
void expect_lanes(const gpu_choose::LanesLaunch& lanes, const Problem& p, const std::string& what) {
  EXPECT_LE(p.cols, 32 * lanes.row_threads) << what;
  EXPECT_LE(p.k, lanes.row_threads) << what;
  EXPECT_GE(lanes.blocks * lanes.threads, lanes.row_threads * p.rows) << what;
}

void expect_stream(const gpu_choose::StreamLaunch& stream, const Problem& p, const Machine& m,
                   const std::string& what) {
  EXPECT_LE(stream.shared_bytes, m.gpu.block_shared) << what;
  EXPECT_EQ(stream.threads % kWarp, 0) << what;
  EXPECT_LE(stream.warps(), gpu_choose::kStreamsAtOnce) << what;
  EXPECT_EQ(stream.blocks, p.rows * stream.cluster) << what;
  EXPECT_TRUE(stream.cluster == 1 || stream.cluster == 2 || stream.cluster == 4) << what;
  EXPECT_LE(p.k, stream.warps() == 1 ? gpu_choose::kMostOneWarpK : gpu_choose::kMostStreamK)
      << what;
  if (stream.cluster > 1) {
    EXPECT_GT(stream.warps(), 1) << what;
    EXPECT_LE(stream.cluster, gpu_rows::most_cluster(m)) << what;
  }
  // A bit for each element of a half.
  EXPECT_LE(gpu_choose::kStreamPacks / 2 * pack_lanes(p.in), 32) << what;
  // The keys that are left of a cut, spread over the lanes, and two more of each have room.
  EXPECT_GE(gpu_choose::kStreamKeys, ceil_div(p.k + p.k / 8, kWarp) + 2) << what;
  // In the end 512 keys in order lie where the stages were, and half a room for each of
  // the other blocks.
  const int stages = gpu_choose::kStreamStages * gpu_choose::kStreamPacks * kPackBytes;
  const int keys = gpu_choose::kStreamKeys * gpu_choose::kKeyBytes;
  const int meeting = stream.warps() > 1 ? gpu_choose::kStreamMeetingBytes : 0;
  const int others = stream.cluster > 1 ? gpu_choose::kStreamOthersBytes +
                                              (stream.cluster - 1) * gpu_choose::kStreamShownBytes
                                        : 0;
  if (stream.warps() > 1) {
    EXPECT_GE(stream.threads * stages,
              512 * gpu_choose::kKeyBytes + (stream.cluster - 1) * keys * kWarp / 2)
        << what;
  }
  EXPECT_EQ(stream.shared_bytes,
            static_cast<std::size_t>(stream.threads * (stages + keys) + meeting + others))
      << what;
}

void expect_select(const gpu_choose::SelectLaunch& select, bool guesses, const Problem& p,
                   const Machine& m, const std::string& what) {
  EXPECT_LE(select.shared_bytes, m.gpu.block_shared) << what;
  if (guesses) {  // and all that its team counts on
    EXPECT_EQ(select.threads, gpu_choose::kGuessThreads) << what;
    EXPECT_TRUE(select.cluster == 16 || select.cluster == 4) << what;
    EXPECT_GE(std::int64_t{select.packs} * select.threads * select.parts, gpu_choose::packs(p))
        << what;
    // A block sends more than its share.
    EXPECT_GE(gpu_choose::kGuessKeys / select.parts, 2 * ceil_div(p.k, select.parts)) << what;
    EXPECT_LE(select.shared_bytes + gpu_choose::kGuessBytes, m.gpu.block_shared) << what;
  }
  EXPECT_LE(select.threads, gpu_choose::kMostThreads) << what;
  EXPECT_EQ(select.threads & (select.threads - 1), 0) << what;
  EXPECT_LE(2 * std::min(p.k, gpu_choose::kMostK), select.keys()) << what;
  EXPECT_GE(std::int64_t{select.chunk} * select.parts, gpu_choose::packs(p)) << what;
  EXPECT_EQ(select.blocks, p.rows * select.parts) << what;
  // Parts are a cluster, or meet in the workspace, where each leaves its keys and a tally.
  const bool on_grid = select.parts > 1 && select.cluster == 1;
  EXPECT_TRUE(on_grid || select.cluster == select.parts) << what;
  EXPECT_EQ(select.scratch_bytes,
            on_grid ? gpu_choose::ticket_bytes(p.rows) +
                          static_cast<std::size_t>(select.blocks) *
                              static_cast<std::size_t>(gpu_choose::kTallyBytes +
                                                       select.segment * gpu_choose::kKeyBytes)
                    : 0)
      << what;
  // A segment has room for K keys and one that counts them.
  if (select.parts > 1) {
    EXPECT_GE(select.segment, p.k + 1) << what;
  }
  if (on_grid) {
    EXPECT_LE(p.k + select.segment - 1, select.keys()) << what;
  } else {
    EXPECT_EQ(select.segment, select.keys() / select.parts) << what;
  }
  EXPECT_GE(select.shared_bytes,
            static_cast<std::size_t>(select.stages * gpu_choose::tile_bytes(select.packs) *
                                         select.threads +
                                     select.keys() * gpu_choose::kKeyBytes))
      << what;
  // A copy engine brings the next stage; who has none, or needs none, has one.
  const bool next =
      m.gpu.sm >= 90 && !select.general && select.chunk > select.packs * select.threads;
  EXPECT_EQ(select.stages, next ? 2 : 1) << what;
}

void expect_holds(const Decision& decision, const Problem& p, const Machine& m) {
  const std::string what = text_of_case(decision, p);
  const Launch& launch = decision.launch;
  if (const auto* lanes = std::get_if<gpu_choose::LanesLaunch>(&launch)) {
    expect_lanes(*lanes, p, what);
  } else if (const auto* stream = std::get_if<gpu_choose::StreamLaunch>(&launch)) {
    expect_stream(*stream, p, m, what);
  } else if (const auto* select = std::get_if<gpu_choose::SelectLaunch>(&launch)) {
    expect_select(*select, decision.variant() == "gpu_guess", p, m, what);
  } else {
    EXPECT_TRUE(std::holds_alternative<gpu_choose::SortLaunch>(launch)) << what;
  }
}

TEST(GpuChooseTest, EveryShapeHasALaunchThatHolds) {
  for (const Machine& m : {h200(), without_clusters(), with_shared(80, 166912),
                           with_shared(89, 101376), with_shared(120, 101376)}) {
    for (const std::int64_t rows : {1, 2, 7, 32, 128, 1024, 65536}) {
      for (const std::int64_t cols : {1, 5, 1000, 32000, 50257, 262144, 5000000}) {
        for (const std::int64_t k : {1, 50, 128, 256, 1024, 2048, 4000}) {
          for (const auto& [plain, in] :
               {std::pair(true, DType::bf16), {true, DType::f32}, {false, DType::bf16}}) {
            Problem p = topk(rows, cols, std::min(k, cols), in);
            p.only_scaled = plain;
            const Decision decision = choose(p, m);
            ASSERT_TRUE(decision);
            expect_holds(decision, p, m);
            for (const std::string& name : launch_names(p, m)) {
              if (p.k > gpu_choose::kMostK) break;
              Decision named;
              const Status status = plan_variant(name, p, m, named);
              ASSERT_TRUE(status.ok()) << name << ": " << status.message();
              if (p.rows * named.plan().split < 4096) expect_holds(named, p, m);
            }
          }
        }
      }
    }
  }
}

// Sixteen on a processor, whatever rows it has; fewer where these are short.
TEST(GpuChooseTest, WarpsOfARow) {
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
TEST(GpuChooseTest, ClustersThatStream) {
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

TEST(GpuChooseTest, WhatIsChosen) {
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
  EXPECT_LT(gpu_choose::kMostSampleStream, kUnlessAsked);
  EXPECT_EQ(choose(sample(128256, 129), h200()).variant(), "gpu_block");
  // Small blocks where rows are many, so that one selects while others read.
  EXPECT_LT(choose(sample(128256, 129), h200()).plan().threads, gpu_choose::kMostThreads);
}

// How often one of the blocks has more of the K than it sends, if they are anywhere in the row.
TEST(GpuChooseTest, AGuessIsSeldomWrong) {
  for (const int split : {4, 16}) {
    const auto k = static_cast<int>(gpu_choose::most_guessed(split));
    const double own = 1.0 / split;
    double more = 0;
    for (int i = gpu_choose::kGuessKeys / split + 1; i <= k; ++i) {
      const double ways = std::lgamma(k + 1) - std::lgamma(i + 1) - std::lgamma(k - i + 1);
      more += std::exp(ways + i * std::log(own) + (k - i) * std::log1p(-own));
    }
    EXPECT_LT(split * more, 1.0 / 200000) << split;
  }
}

TEST(GpuChooseTest, StagesAreShortWhereBlocksShareAProcessor) {
  const auto packs = [](const Problem& p) {
    const Decision decision = choose(p, h200());
    return select_of(decision).packs;
  };
  EXPECT_EQ(packs(topk(128, 128256, 300, DType::f32)), gpu_choose::kManyPacks);
  EXPECT_EQ(packs(topk(1, 128256, 50, DType::f32)), gpu_choose::kManyPacks);
  EXPECT_EQ(packs(topk(1, 128256, 50, DType::bf16)), gpu_choose::kFewPacks);  // one stage is all
  EXPECT_EQ(packs(topk(512, 32000, 300, DType::f32)), gpu_choose::kFewPacks);
  // 62 of the short ones.
  EXPECT_EQ(packs(topk(512, 513024, 300, DType::f32)), gpu_choose::kManyPacks);
  // Eight blocks of 128 threads at a time, each with what is not in the plan and what the
  // system keeps of it.
  constexpr std::size_t kBeside = 1104 + 1024;
  const Problem many = topk(1024, 128256, 64, DType::bf16);
  EXPECT_LE(8 * (gpu_choose::block(many, h200()).shared_bytes + kBeside), std::size_t{228} << 10);
}

TEST(GpuChooseTest, ManyRowsAreSortedInTurns) {
  const Problem p = topk(100000, 60000, 60000);
  const Plan plan = choose(p, h200()).plan();
  EXPECT_LE(plan.scratch_bytes, std::size_t{256} << 20);
  EXPECT_LT(plan.blocks, p.rows);
  EXPECT_GE(plan.blocks, 1);
}

TEST(GpuChooseTest, WhatCannotRunSaysWhy) {
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

TEST(GpuChooseTest, OneKernelHasAllRowsInF64) {
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
                    static_cast<std::size_t>(plan.blocks * k * gpu_choose::kEntryBytes));
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
