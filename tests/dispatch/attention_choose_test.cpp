// What the dispatcher decides for attention, and how the CPU's work is cut.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "ops/attention/cpu/flash.hpp"

namespace onepass {
namespace {

Problem problem(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t queries,
                std::int64_t keys) {
  Problem p{.op = Op::attention, .rows = batch * heads * queries, .cols = keys};
  p.attention = {.batch = batch,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .queries = queries,
                 .keys = keys,
                 .dim = 64};
  return p;
}

Machine with_threads(int threads) {
  Machine m = known_machines()[0];
  m.threads = threads;
  return m;
}

CpuAttentionLaunch launch_of(const Problem& p, const Machine& m) {
  const Decision decision = choose(p, m);
  EXPECT_EQ(decision.variant(), "cpu_flash");
  return std::get<CpuAttentionLaunch>(decision.launch);
}

TEST(AttentionChooseTest, ManyRowsKeepTheirKeysWhole) {
  const CpuAttentionLaunch plan = launch_of(problem(1, 8, 8, 2048, 2048), with_threads(2));
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.parts, 1);
  EXPECT_EQ(plan.part_keys, 0);
}

TEST(AttentionChooseTest, FewRowsWithManyKeysAreCut) {
  const CpuAttentionLaunch plan = launch_of(problem(1, 4, 1, 1, 65536), with_threads(8));
  EXPECT_EQ(plan.parts, 8);
  EXPECT_EQ(plan.part_keys, 8192);
  EXPECT_EQ(launch_of(problem(1, 4, 1, 1, 600), with_threads(8)).parts,
            1);  // too few to be worth it
}

TEST(AttentionChooseTest, APartIsAsLongAsAskedFor) {
  Problem p = problem(4, 8, 8, 100, 1000);
  p.attention.split = 300;
  const CpuAttentionLaunch plan = launch_of(p, with_threads(2));
  EXPECT_EQ(plan.part_keys, 300);
  EXPECT_EQ(plan.parts, 4);
}

TEST(AttentionChooseTest, APartHasNoMoreKeysThanThereAre) {
  Problem p = problem(4, 8, 8, 100, 1000);
  p.attention.split = std::numeric_limits<std::int64_t>::max();
  const CpuAttentionLaunch plan = launch_of(p, with_threads(2));
  EXPECT_EQ(plan.part_keys, 1000);
  EXPECT_EQ(plan.parts, 1);
}

TEST(AttentionChooseTest, BatchInvariantPartsDoNotLookAtTheBatch) {
  std::set<std::int64_t> parts;
  for (const std::int64_t batch : {1, 7, 300}) {
    for (const int threads : {1, 2, 64}) {
      Problem p = problem(batch, 8, 2, 1, 5000);
      p.batch_invariant = true;
      parts.insert(launch_of(p, with_threads(threads)).part_keys);
    }
  }
  EXPECT_EQ(parts.size(), 1U);
}

TEST(AttentionChooseTest, EveryDecisionHasAReason) {
  Reasons reasons;
  choose(problem(1, 8, 8, 64, 64), with_threads(2), &reasons);
  EXPECT_GE(reasons.size(), 3U);
  Decision plan;
  EXPECT_EQ(plan_variant("cpu_naive", problem(1, 8, 8, 64, 64), known_gpus()[0], plan).code(),
            Code::unsupported);
}

AttentionArgs args_of(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                      std::int64_t queries, std::int64_t keys) {
  AttentionArgs args;
  args.batch = batch;
  args.heads = heads;
  args.kv_heads = kv_heads;
  args.queries = queries;
  args.keys = keys;
  args.dim = args.dim_v = 64;
  return args;
}

TEST(RowTilesTest, EveryRowIsInOneTile) {
  for (const std::int64_t queries : {0, 1, 7, 64, 65, 200}) {
    const AttentionArgs args = args_of(3, 6, 2, queries, 10);
    const RowTiles tiles(args, 64);
    std::set<std::array<std::int64_t, 3>> seen;
    for (std::int64_t i = 0; i < tiles.count(); ++i) {
      const RowTile tile = tiles.at(i);
      EXPECT_GT(tile.rows, 0);
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        const std::int64_t head = tiles.head(tile, r);
        EXPECT_EQ(head / 3, tile.kv_head);
        EXPECT_TRUE(seen.insert({tile.batch, head, tiles.query(tile, r)}).second);
      }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(3 * 6 * queries));
  }
}

TEST(RowTilesTest, SequencesOfDifferentLengthsHaveTheirOwn) {
  const std::int32_t offsets[] = {0, 0, 70, 71, 71};
  AttentionArgs args = args_of(4, 2, 2, 71, 10);
  args.q_offsets = {offsets, DType::i32};
  const RowTiles tiles(args, 64);
  EXPECT_EQ(tiles.count(), 2 * 2 + 2);
  EXPECT_EQ(tiles.at(0).batch, 1);
  EXPECT_EQ(tiles.at(0).first, 64);  // the last rows first
  EXPECT_EQ(tiles.at(1).rows, 64);
  EXPECT_EQ(tiles.at(5).batch, 2);
  EXPECT_EQ(tiles.at(5).sequence.q_first, 70);
}

// A function of the problem alone: the order of all sums, hence their bits, follows from it.
TEST(AttentionChooseTest, TilesOfTheBackwardDoNotDependOnThreads) {
  Problem p = problem(1, 8, 8, 1024, 1024);
  p.op = Op::attention_backward;
  const auto launch = [&p](int threads) {
    const Decision decision = choose(p, with_threads(threads));
    EXPECT_EQ(decision.variant(), "cpu_flash");
    return std::get<CpuAttentionBackwardLaunch>(decision.launch);
  };
  EXPECT_EQ(launch(2).threads, 2);
  EXPECT_EQ(launch(2).tile_keys, launch(64).tile_keys);
  EXPECT_EQ(launch(2).tile_keys, 128);  // 64 tiles
  // As large as q in float32, two numbers per query, and two per tile of 64.
  EXPECT_EQ(launch(2).workspace_bytes, 8 * 1024 * (64 + 2) * 4 + (8 * 1024 / 64 + 8) * 8);
  p.attention.keys = p.cols = 1 << 16;
  EXPECT_EQ(launch(2).tile_keys, 256);
  EXPECT_EQ(launch(2).workspace_bytes, 8 * 1024 * (64 + 2) * 4 + (8 * 1024 / 64 + 8) * 8);
  EXPECT_GE(planned_bytes(p, choose(p, with_threads(2)), with_threads(2)), least_bytes(p));
}

TEST(AttentionChooseTest, AGpuHasNoGradientsInFloat64) {
  Problem p = problem(1, 8, 8, 1024, 1024);
  p.op = Op::attention_backward;
  p.in = p.out = DType::f64;
  Reasons reasons;
  EXPECT_FALSE(choose(p, known_gpus()[0], &reasons));
  EXPECT_NE(reasons.back().find("it takes and gives f32, f16 and bf16"), std::string::npos)
      << reasons.back();
}

TEST(FlashWorkTest, PartsCoverTheKeysOfEachSequence) {
  const std::int64_t lengths[] = {0, 300, 129};
  AttentionArgs args = args_of(3, 2, 1, 2, 400);
  args.lengths = {lengths, DType::i64};
  const FlashWork<float> work(args, {.part_keys = 100});
  EXPECT_EQ(work.parts, 3);  // by the longest that there is
  EXPECT_EQ(work.rows, 4);
  for (std::int64_t i = 0; i < work.tiles.count(); ++i) {
    const RowTile tile = work.tiles.at(i);
    std::int64_t at = 0;
    for (std::int64_t part = 0; part < work.parts; ++part) {
      const Keys keys = work.keys_of(tile, part);
      EXPECT_EQ(keys.begin, at);
      at = keys.end;
    }
    EXPECT_EQ(at, lengths[tile.batch]);
  }
}

}  // namespace
}  // namespace onepass
