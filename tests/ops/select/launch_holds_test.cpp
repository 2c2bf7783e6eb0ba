// The launches of what selects from rows on a GPU hold for every shape.
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

std::string text_of_case(const Decision& decision, const Problem& p) {
  return to_string(decision.plan()) + " of " + std::to_string(p.rows) + "x" +
         std::to_string(p.cols) + " k " + std::to_string(p.k);
}

// What every kernel counts on.
void expect_lanes(const gpu_select::LanesLaunch& lanes, const Problem& p, const std::string& what) {
  EXPECT_LE(p.cols, 32 * lanes.row_threads) << what;
  EXPECT_LE(p.k, lanes.row_threads) << what;
  EXPECT_GE(lanes.blocks * lanes.threads, lanes.row_threads * p.rows) << what;
}

void expect_stream(const gpu_select::StreamLaunch& stream, const Problem& p, const Machine& m,
                   const std::string& what) {
  EXPECT_LE(stream.shared_bytes, m.gpu.block_shared) << what;
  EXPECT_EQ(stream.threads % kWarp, 0) << what;
  EXPECT_LE(stream.warps(), gpu_select::kStreamsAtOnce) << what;
  EXPECT_EQ(stream.blocks, p.rows * stream.cluster) << what;
  EXPECT_TRUE(stream.cluster == 1 || stream.cluster == 2 || stream.cluster == 4) << what;
  EXPECT_LE(p.k, stream.warps() == 1 ? gpu_select::kMostOneWarpK : gpu_select::kMostStreamK)
      << what;
  if (stream.cluster > 1) {
    EXPECT_GT(stream.warps(), 1) << what;
    EXPECT_LE(stream.cluster, gpu_rows::most_cluster(m)) << what;
  }
  // A bit for each element of a half.
  EXPECT_LE(gpu_select::kStreamPacks / 2 * pack_lanes(p.in), 32) << what;
  // The keys that are left of a cut, spread over the lanes, and two more of each have room.
  EXPECT_GE(gpu_select::kStreamKeys, ceil_div(p.k + p.k / 8, kWarp) + 2) << what;
  // In the end 512 keys in order lie where the stages were, and half a room for each of
  // the other blocks.
  const int stages = gpu_select::kStreamStages * gpu_select::kStreamPacks * kPackBytes;
  const int keys = gpu_select::kStreamKeys * gpu_select::kKeyBytes;
  const int meeting = stream.warps() > 1 ? gpu_select::kStreamMeetingBytes : 0;
  const int others = stream.cluster > 1 ? gpu_select::kStreamOthersBytes +
                                              (stream.cluster - 1) * gpu_select::kStreamShownBytes
                                        : 0;
  if (stream.warps() > 1) {
    EXPECT_GE(stream.threads * stages,
              512 * gpu_select::kKeyBytes + (stream.cluster - 1) * keys * kWarp / 2)
        << what;
  }
  EXPECT_EQ(stream.shared_bytes,
            static_cast<std::size_t>(stream.threads * (stages + keys) + meeting + others))
      << what;
}

void expect_select(const gpu_select::SelectLaunch& select, bool guesses, const Problem& p,
                   const Machine& m, const std::string& what) {
  EXPECT_LE(select.shared_bytes, m.gpu.block_shared) << what;
  if (guesses) {  // and all that its team counts on
    EXPECT_EQ(select.threads, gpu_select::kGuessThreads) << what;
    EXPECT_TRUE(select.cluster == 16 || select.cluster == 4) << what;
    EXPECT_GE(std::int64_t{select.packs} * select.threads * select.parts, gpu_select::packs(p))
        << what;
    // A block sends more than its share.
    EXPECT_GE(gpu_select::kGuessKeys / select.parts, 2 * ceil_div(p.k, select.parts)) << what;
    EXPECT_LE(select.shared_bytes + gpu_select::kGuessBytes, m.gpu.block_shared) << what;
  }
  EXPECT_LE(select.threads, gpu_select::kMostThreads) << what;
  EXPECT_EQ(select.threads & (select.threads - 1), 0) << what;
  EXPECT_LE(2 * std::min(p.k, gpu_select::kMostK), select.keys()) << what;
  EXPECT_GE(std::int64_t{select.chunk} * select.parts, gpu_select::packs(p)) << what;
  EXPECT_EQ(select.blocks, p.rows * select.parts) << what;
  // Parts are a cluster, or meet in the workspace, where each leaves its keys and a tally.
  const bool on_grid = select.parts > 1 && select.cluster == 1;
  EXPECT_TRUE(on_grid || select.cluster == select.parts) << what;
  EXPECT_EQ(select.scratch_bytes,
            on_grid ? gpu_select::ticket_bytes(p.rows) +
                          static_cast<std::size_t>(select.blocks) *
                              static_cast<std::size_t>(gpu_select::kTallyBytes +
                                                       select.segment * gpu_select::kKeyBytes)
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
            static_cast<std::size_t>(select.stages * gpu_select::tile_bytes(select.packs) *
                                         select.threads +
                                     select.keys() * gpu_select::kKeyBytes))
      << what;
  // A copy engine brings the next stage; who has none, or needs none, has one.
  const bool next =
      m.gpu.sm >= 90 && !select.general && select.chunk > select.packs * select.threads;
  EXPECT_EQ(select.stages, next ? 2 : 1) << what;
}

void expect_holds(const Decision& decision, const Problem& p, const Machine& m) {
  const std::string what = text_of_case(decision, p);
  const Launch& launch = decision.launch;
  if (const auto* lanes = std::get_if<gpu_select::LanesLaunch>(&launch)) {
    expect_lanes(*lanes, p, what);
  } else if (const auto* stream = std::get_if<gpu_select::StreamLaunch>(&launch)) {
    expect_stream(*stream, p, m, what);
  } else if (const auto* select = std::get_if<gpu_select::SelectLaunch>(&launch)) {
    expect_select(*select, decision.variant() == "gpu_guess", p, m, what);
  } else {
    EXPECT_TRUE(std::holds_alternative<gpu_select::SortLaunch>(launch)) << what;
  }
}

TEST(GpuSelectTest, EveryShapeHasALaunchThatHolds) {
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
              if (p.k > gpu_select::kMostK) break;
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

}  // namespace
}  // namespace onepass
