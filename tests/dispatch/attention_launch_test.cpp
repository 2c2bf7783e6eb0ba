// What of attention on a GPU is decided without one: the keys that tiles see, who computes which tile, how keys are
// cut, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "dispatch/attention_launch.hpp"
#include "dispatch/attention_schedule.hpp"
#include "dispatch/attention_tiles.hpp"
#include "dispatch/choose.hpp"
#include "ops/attention/args.hpp"
#include "tests/support/attention.hpp"

namespace onepass {
namespace {

using attention_tiles::key_tiles;
using attention_tiles::KeyTiles;
using attention_tiles::Schedule;
using attention_tiles::Sight;
using attention_tiles::Walk;
using attention_tiles::Work;

std::vector<Sight> sights() {
  std::vector<Sight> all;
  for (const int queries : {1, 5, 64, 130}) {
    for (const int keys : {0, 1, 63, 64, 65, 200}) {
      for (const int before : {-1, 0, 3, 70, 1000}) {
        for (const int after : {-1, 0, 9, 1000}) all.push_back({queries, keys, before, after});
      }
    }
  }
  return all;
}

// What a kernel that takes one query at a time would see.
bool sees(const Sight& s, int query, int key) {
  const int own = query + s.keys - s.queries;
  return (s.before < 0 || key >= own - s.before) && (s.after < 0 || key <= own + s.after);
}

TEST(AttentionLaunchTest, TilesHaveAllKeysThatAreSeenAndWholeOnesNoOther) {
  for (const Sight& s : sights()) {
    for (const int rows : {16, 64}) {
      for (const int width : {16, 64}) {
        for (int first = 0; first < s.queries; first += rows) {
          const KeyTiles tiles = key_tiles(s, first, rows, width);
          for (int key = 0; key < s.keys; ++key) {
            int count = 0;
            const int last = std::min(first + rows, s.queries);
            for (int q = first; q < last; ++q) count += sees(s, q, key) ? 1 : 0;
            const int tile = key / width;
            const bool walked = tile >= tiles.begin && tile < tiles.end;
            ASSERT_TRUE(count == 0 || walked) << key;
            const bool whole = walked && tiles.whole(tile);
            ASSERT_EQ(whole ? count : last - first, last - first) << key;
          }
          if (tiles.whole_end > tiles.whole_begin && tiles.end > tiles.begin) {
            ASSERT_LE(std::min(tiles.end, tiles.whole_end) * width, s.keys);  // none past the last
          }
        }
      }
    }
  }
}

TEST(AttentionLaunchTest, RowsSeeTogetherWhatEachOfThemSees) {
  for (const Sight& s : sights()) {
    for (int first = 0; first < s.queries; first += 16) {
      const attention_tiles::SightOfRows rows = attention_tiles::of_rows(s, first, 16);
      const int last = std::min(first + 16, s.queries);
      for (int key = 0; key < s.keys; ++key) {
        int count = 0;
        for (int q = first; q < last; ++q) count += sees(s, q, key) ? 1 : 0;
        ASSERT_EQ(rows.by_all(key, 1), count == last - first) << key;
        ASSERT_TRUE(!rows.by_none(key) || count == 0) << key;
        // What a window has left behind is not told apart.
        ASSERT_TRUE(rows.by_none(key) || count > 0 || s.before >= 0) << key;
        for (const int width : {2, 64}) {
          const bool all = rows.by_all(key, 1) && rows.by_all(key + width - 1, 1);
          ASSERT_EQ(rows.by_all(key, width), all && key + width <= s.keys) << key;
        }
      }
    }
  }
}

TEST(AttentionLaunchTest, SightIsWhatTheArgumentsSay) {
  AttentionArgs a{.batch = 1, .heads = 1, .kv_heads = 1, .queries = 7, .keys = 12, .dim = 8};
  for (const std::int64_t left : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 40}) {
    for (const std::int64_t right : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40}) {
      for (const bool causal : {false, true}) {
        a.window_left = left;
        a.window_right = right;
        a.causal = causal;
        const Sequence s = sequence_of(a, 0);
        const Sight sight = sight_of(a, s);
        for (int q = 0; q < 7; ++q) {
          const Keys keys = live_keys(a, s, q);
          const int begin = std::min(sight.begin(q), sight.end(q));
          EXPECT_EQ(begin, keys.begin);
          EXPECT_EQ(sight.end(q), keys.end);
        }
      }
    }
  }
}

TEST(AttentionLaunchTest, PartsHaveEveryTileOnce) {
  const KeyTiles all{3, 20, 5, 18};
  for (const int tiles : {1, 4, 7, 100}) {
    std::vector<int> seen;
    for (int part = 0; part < 40; ++part) {
      const KeyTiles own = all.of_part(part, tiles);
      for (int t = own.begin; t < own.end; ++t) seen.push_back(t);
    }
    std::vector<int> expected(17);
    std::iota(expected.begin(), expected.end(), 3);
    EXPECT_EQ(seen, expected);
  }
}

TEST(AttentionLaunchTest, EveryTileHasOneBlock) {
  for (const int left : {-2, -1, 0, 1, 2}) {
    for (const int tiles : {1, 2, 3, 4, 11, 16, 33}) {
      for (const int heads : {1, 5, 64}) {
        for (const int blocks : {1, 2, 7, 132}) {
          const Schedule schedule =
              left < -1 ? Schedule(tiles, heads) : Schedule::in_pairs(tiles, heads, blocks, left);
          std::map<std::pair<int, int>, int> times;
          for (int block = 0; block < blocks; ++block) {
            for (Walk walk(schedule, block, blocks); !walk.done(); walk.advance()) {
              const Work work = walk.work();
              ++times[{work.head, work.query_tile}];
            }
          }
          EXPECT_EQ(times.size(), static_cast<std::size_t>(tiles * heads));
          for (const auto& [work, count] : times) EXPECT_EQ(count, 1) << work.first;
        }
      }
    }
  }
}

// A causal sequence: tile t has t + 1 tiles of keys, and something to begin and to end with. 15.5 tiles a block, as
// 16384 tokens of 16 heads have on an H200.
TEST(AttentionLaunchTest, BlocksUnderADiagonalAreDoneTogether) {
  constexpr int kBlocks = 132;
  constexpr double kOwn = 1.5;
  for (const auto& [tiles, most] : {std::pair{4, 1.02},
                                    {8, 1.011},
                                    {16, 1.006},
                                    {32, 1.01},
                                    {43, 1.01},
                                    {64, 1.01},
                                    {128, 1.01}}) {
    const Schedule schedule = Schedule::in_pairs(tiles, 2048 / tiles, kBlocks,
                                                 attention_launch::hopper_rounds_left(128, tiles));
    std::vector<double> load(kBlocks);
    for (int block = 0; block < kBlocks; ++block) {
      for (Walk walk(schedule, block, kBlocks); !walk.done(); walk.advance()) {
        load[static_cast<std::size_t>(block)] += walk.work().query_tile + 1 + kOwn;
      }
    }
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / kBlocks;
    EXPECT_LE(*std::max_element(load.begin(), load.end()), most * mean) << tiles;
  }
}

// Whole warpgroups of the first tile are before the first query, and none after the last.
TEST(AttentionLaunchTest, TheFirstTileUnderADiagonalHasFewerQueries) {
  using attention_launch::hopper_lead;
  EXPECT_EQ(hopper_lead({3, 128}, 6, 1024), 128);
  EXPECT_EQ(hopper_lead({3, 128}, 6, 1025), 64);
  EXPECT_EQ(hopper_lead({3, 128}, 6, 1152), 0);
  EXPECT_EQ(hopper_lead({3, 128}, 3, 512), 0);  // too few tiles
  EXPECT_EQ(hopper_lead({2, 128}, 8, 960), 64);
}

// Where tiles of 128 queries take as many rounds as tiles of 192.
TEST(AttentionLaunchTest, AThirdWarpgroupSavesARoundOrIsNotThere) {
  const auto plan = [](std::int64_t batch, std::int64_t heads, std::int64_t queries, int dim,
                       bool invariant = false) {
    Problem p = attention_problem(batch, heads, heads, queries, queries, dim);
    p.batch_invariant = invariant;
    return attention_launch::hopper(p, h200());
  };
  EXPECT_EQ(plan(1, 12, 1024, 64).threads, 3 * 128);  // 72 and 96 tiles
  EXPECT_EQ(plan(1, 12, 1024, 64).blocks, 96);
  EXPECT_EQ(plan(4, 12, 1024, 64).threads, 3 * 128);   // 288 and 384
  EXPECT_EQ(plan(1, 16, 4096, 64).threads, 4 * 128);   // 352 and 512
  EXPECT_EQ(plan(4, 32, 4096, 64).threads, 4 * 128);   // 2816 and 4096
  EXPECT_EQ(plan(64, 32, 128, 64).threads, 3 * 128);   // as many
  EXPECT_EQ(plan(4, 32, 4096, 128).threads, 3 * 128);  // never three
  EXPECT_EQ(plan(1, 12, 1024, 64, true).threads, plan(4, 12, 1024, 64, true).threads);
  EXPECT_EQ(plan(4, 12, 1024, 64, true).threads, plan(1, 16, 4096, 64, true).threads);
}

TEST(AttentionLaunchTest, DecodeHasAWarpForEachScheduler) {
  const auto warps = [](Problem p, std::int64_t page = 0) {
    p.attention.page = page;
    return choose(p, h200()).threads / 32;
  };
  EXPECT_EQ(warps(attention_problem(1, 32, 8, 1, 8192, 64)), 4);
  EXPECT_EQ(warps(attention_problem(1, 32, 8, 1, 8192, 128)), 4);
  EXPECT_EQ(warps(attention_problem(32, 32, 8, 1, 8192, 128)), 4);
  EXPECT_EQ(warps(attention_problem(1, 32, 8, 1, 8192, 256)), 3);  // shared memory has no room
  EXPECT_EQ(warps(attention_problem(1, 32, 8, 1, 8192, 128), 16), 4);
  EXPECT_EQ(warps(attention_problem(32, 32, 8, 1, 8192, 128), 16), 3);  // twice
  EXPECT_EQ(warps(attention_problem(32, 32, 8, 1, 8192, 64), 16), 6);
}

TEST(AttentionLaunchTest, TheKernelFitsTheProblem) {
  const auto chosen = [](const Problem& p) { return std::string(choose(p, h200()).variant); };
  EXPECT_EQ(chosen(attention_problem(4, 16, 16, 4096, 4096, 128)), "hopper");
  EXPECT_EQ(chosen(attention_problem(4, 16, 16, 4096, 4096, 80)), "flash_mma");
  EXPECT_EQ(chosen(attention_problem(1, 1, 1, 1024, 1024, 64)), "flash_mma");  // keys are shared
  EXPECT_EQ(chosen(attention_problem(1, 3, 3, 1024, 1024, 64)), "flash_mma");  // 24 tiles
  EXPECT_EQ(chosen(attention_problem(1, 4, 4, 1024, 1024, 64)), "hopper");
  EXPECT_EQ(chosen(attention_problem(1, 8, 8, 512, 512, 64)), "hopper");
  EXPECT_EQ(chosen(attention_problem(1, 1, 1, 1024, 1024, 128)), "flash_mma");
  EXPECT_EQ(chosen(attention_problem(1, 2, 2, 1024, 1024, 128)), "hopper");
  EXPECT_EQ(chosen(attention_problem(1, 1, 1, 2048, 2048, 128)), "flash_mma");
  EXPECT_EQ(chosen(attention_problem(1, 32, 32, 64, 4096, 128)), "hopper");
  EXPECT_EQ(chosen(attention_problem(1, 32, 32, 64, 8192, 128)), "flash_mma");
  EXPECT_EQ(chosen(attention_problem(1, 32, 8, 1, 8192, 128)), "gpu_decode");
  EXPECT_EQ(chosen(attention_problem(1, 32, 8, 4, 8192, 128)), "gpu_decode");
  EXPECT_EQ(chosen(attention_problem(1, 32, 8, 5, 8192, 128)), "flash_mma");
  EXPECT_EQ(chosen(attention_problem(64, 32, 8, 5, 8192, 128)), "flash_mma");  // heads together
  EXPECT_EQ(chosen(attention_problem(64, 32, 8, 64, 8192, 128)), "hopper");
  EXPECT_EQ(chosen(attention_problem(64, 32, 32, 20, 8192, 128)), "hopper");
  EXPECT_EQ(chosen(attention_problem(4, 16, 16, 4096, 4096, 128, DType::f32)), "simt");
  Problem masked = attention_problem(4, 16, 16, 4096, 4096, 128);
  masked.attention.additive = true;
  EXPECT_EQ(chosen(masked), "flash_mma");
  Machine ampere = h200();
  ampere.gpu.sm = 80;
  EXPECT_EQ(choose(attention_problem(4, 16, 16, 4096, 4096, 128), ampere).variant, "flash_mma");
  ampere.gpu.sm = 75;
  EXPECT_EQ(choose(attention_problem(4, 16, 16, 4096, 4096, 128), ampere).variant, "simt");
}

// As cudaOccupancyMaxActiveClusters says of an H200 with room for one block an SM, and for two.
TEST(AttentionLaunchTest, ClustersLeaveSomeSmsOut) {
  using attention_launch::clustered_blocks;
  EXPECT_EQ(clustered_blocks(132, 1), 132);
  EXPECT_EQ(clustered_blocks(132, 8), 15 * 8);
  EXPECT_EQ(clustered_blocks(132, 16), 7 * 16);
  EXPECT_EQ(clustered_blocks(264, 8), 30 * 8);
  EXPECT_EQ(clustered_blocks(264, 16), 14 * 16);
}

// Queries by the tile, few of them: blocks of a cluster share the keys, and nothing goes through memory.
TEST(AttentionLaunchTest, ClustersShareKeysWhereTilesAreFew) {
  const Plan head = choose(attention_problem(1, 1, 1, 1024, 1024, 64), h200());
  EXPECT_EQ(head.cluster, 8);
  EXPECT_EQ(head.split, 1);
  EXPECT_EQ(head.blocks, 8 * 8);
  EXPECT_EQ(head.scratch_bytes, 0U);
  const Plan many = attention_launch::mma(attention_problem(64, 32, 32, 4096, 4096, 128), h200());
  EXPECT_EQ(many.cluster, 1);
  EXPECT_EQ(many.split, 1);
  Machine ampere = h200();
  ampere.gpu.sm = 80;
  const Plan before = choose(attention_problem(1, 1, 1, 1024, 1024, 64), ampere);
  EXPECT_EQ(before.cluster, 1);
  EXPECT_GE(before.split, 8);
}

// What parts of many rows found would take longer to join than to find.
TEST(AttentionLaunchTest, PartsAreOfFewRows) {
  const auto plan = [](std::int64_t heads, std::int64_t queries, std::int64_t keys) {
    return attention_launch::mma(attention_problem(1, heads, heads, queries, keys, 64), h200());
  };
  EXPECT_EQ(plan(8, 1024, 1024).split, 1);
  EXPECT_EQ(plan(8, 1024, 1024).cluster, 2);
  EXPECT_EQ(plan(1, 512, 512).cluster, 8);
  EXPECT_EQ(plan(16, 64, 16384).split, 16);
}

// Keys are loaded by the 128 where a head has dim 64 or 192 and its rows' keys are one block's; what is planned with is
// what the kernel takes.
TEST(AttentionLaunchTest, TilesDoubleWhereNobodySharesThem) {
  using namespace attention_launch;
  const auto bytes = [](Problem p, auto&& change) {
    change(p);
    return mma(p, h200()).shared_bytes;
  };
  const auto as_it_is = [](Problem&) {};
  constexpr std::size_t once = flash_bytes({64, 64}, 128);
  constexpr std::size_t twice = flash_bytes({64, 64}, 128, 2 * kFlashKeys);
  EXPECT_EQ(once, (128U + 64 + 64) * 128);
  EXPECT_EQ(twice, (128U + 128 + 128) * 128);
  const Problem many = attention_problem(16, 32, 32, 1024, 1024, 64);
  EXPECT_EQ(bytes(many, as_it_is), twice);
  EXPECT_EQ(bytes(many, [](Problem& p) { p.attention.keys = 511; }), once);
  EXPECT_EQ(bytes(many, [](Problem& p) { p.attention.keys = 512; }), twice);
  EXPECT_EQ(bytes(many, [](Problem& p) { p.attention.split = 512; }), once);
  EXPECT_EQ(bytes(many, [](Problem& p) { p.attention.dim = 96; }), flash_bytes({96, 96}, 128));
  // As many tokens as all sequences have together.
  const auto packed = [](std::int64_t tokens) {
    return [tokens](Problem& p) {
      p.attention.q_offsets = p.attention.kv_offsets = p.batch_invariant = true;
      p.attention.queries = p.attention.keys = tokens;
    };
  };
  EXPECT_EQ(bytes(many, packed(300)), bytes(many, packed(30000)));
  const Plan one = mma(attention_problem(1, 1, 1, 1024, 1024, 64), h200());
  EXPECT_EQ(one.cluster, 8);
  EXPECT_FALSE(flash_doubles({64, 64}, 128, 1024, false, one, h200()));
  EXPECT_FALSE(has_doubled({64, 64}, 128, one));
  EXPECT_TRUE(has_doubled({64, 64}, 128, mma(many, h200())));
  const Problem wide = attention_problem(16, 8, 8, 1024, 1024, 192);
  EXPECT_TRUE(has_doubled({192, 192}, 128, mma(wide, h200())));
  Machine small = h200();
  small.gpu.block_shared = 130 << 10;  // not enough for that
  const Plan plan = mma(wide, small);
  EXPECT_FALSE(has_doubled({192, 192}, 128, plan));
  EXPECT_LE(plan.shared_bytes, std::size_t{130} << 10);
  // 64 rows and keys, so that an SM has two blocks.
  const Plan widest = mma(attention_problem(16, 8, 8, 1024, 1024, 256), h200());
  EXPECT_EQ(widest.shared_bytes, (64U + 64 + 64) * 512);
  EXPECT_EQ(widest.threads, 128);
}

// A few queries: the memory is the limit, and every SM is wanted.
TEST(AttentionLaunchTest, DecodeCutsKeysUntilEverySmHasABlock) {
  const Plan one = choose(attention_problem(1, 32, 8, 1, 131072, 128), h200());
  EXPECT_EQ(one.cluster, 1);
  EXPECT_GE(one.blocks, 8 * 16);
  EXPECT_GE(choose(attention_problem(1, 32, 8, 1, 8192, 128), h200()).blocks, 119);  // of 132
  EXPECT_EQ(one.keys % attention_launch::kFlashKeys, 0);
  EXPECT_GE(one.keys * one.split, 131072);
  EXPECT_LT(one.keys * (one.split - 1), 131072);
  EXPECT_EQ(one.threads, 4 * 32);  // of whom each warp leaves what it found
  EXPECT_EQ(one.scratch_bytes, static_cast<std::size_t>(one.split) * 4 * 32 * 129 * 4);
  EXPECT_EQ(choose(attention_problem(2, 32, 8, 1, 8192, 128), h200()).blocks, 16 * 8);
  const Plan many = choose(attention_problem(32, 32, 8, 1, 8192, 128), h200());
  EXPECT_EQ(many.split, 1);
  EXPECT_EQ(many.blocks, 32 * 8);
}

// Where a row has few parts their warps do not join what they found; where it has many, or one, they do, and where the
// cut is given and a row's bits shall not depend on how many there are.
TEST(AttentionLaunchTest, WarpsOfFewPartsLeaveWhatTheyFound) {
  EXPECT_EQ(attention_launch::left_by_part(1, 4), 1);
  EXPECT_EQ(attention_launch::left_by_part(2, 4), 4);
  EXPECT_EQ(attention_launch::left_by_part(32, 4), 4);
  EXPECT_EQ(attention_launch::left_by_part(33, 4), 1);
  EXPECT_EQ(attention_launch::left_by_part(16, 1), 1);
  const std::size_t of_part = std::size_t{32} * 129 * 4;
  Problem p = attention_problem(1, 32, 8, 1, 8192, 128);
  p.attention.split = 1024;
  EXPECT_EQ(choose(p, h200()).scratch_bytes, 8 * of_part);
  p.attention.split = 0;
  EXPECT_EQ(choose(p, h200()).scratch_bytes, choose(p, h200()).split * 4 * of_part);
  p.batch_invariant = true;
  EXPECT_EQ(choose(p, h200()).scratch_bytes, choose(p, h200()).split * of_part);
}

// What a block asks for is there on every GPU that it runs on.
TEST(AttentionLaunchTest, TeamsFitASmallSm) {
  Machine small = h200();
  small.gpu.sm = 86;
  small.gpu.block_shared = 99 * 1024;
  for (const int dim : {64, 128, 256}) {
    const Problem p = attention_problem(1, 32, 8, 1, 8192, dim);
    EXPECT_EQ(choose(p, small).variant, "gpu_decode") << dim;
    EXPECT_LE(choose(p, small).shared_bytes, 99U * 1024) << dim;
  }
}

TEST(AttentionLaunchTest, BatchInvariantPlansDoNotLookAtTheBatch) {
  for (const std::int64_t queries : {1, 64, 1024}) {
    for (const std::int64_t page : {0, 16}) {
      std::set<std::tuple<std::string, std::int64_t, int>> plans;
      for (const std::int64_t batch : {1, 3, 200}) {
        Problem p = attention_problem(batch, 8, 2, queries, 3000, 64);
        p.attention.page = page;
        p.batch_invariant = true;
        const Plan plan = choose(p, h200());
        EXPECT_EQ(plan.cluster, 1);
        plans.emplace(plan.variant, plan.keys, plan.threads);
      }
      EXPECT_EQ(plans.size(), 1U) << queries << " " << page;
    }
  }
}

TEST(AttentionLaunchTest, APartIsWhatWasAskedForInTiles) {
  Problem p = attention_problem(4, 8, 8, 100, 1000, 64);
  p.attention.split = 100;
  const Plan plan = choose(p, h200());
  EXPECT_EQ(plan.variant, "flash_mma");  // the Hopper kernel does not cut
  EXPECT_EQ(plan.keys, 128);
  EXPECT_EQ(plan.split, 8);
  p.attention.split = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(choose(p, h200()).split, 1);
}

// Sequences side by side: the tiles of all tokens, not as many for each sequence.
TEST(AttentionLaunchTest, ManyShortSequencesAreNotTooMany) {
  Problem p = attention_problem(512, 32, 8, 1 << 20, 1 << 20, 128);
  p.attention.q_offsets = p.attention.kv_offsets = true;
  EXPECT_EQ(attention_launch::hopper_tiles(p.attention), 32 * ((1 << 20) / 128 + 512));
  EXPECT_EQ(choose(p, h200()).variant, "hopper");
  p.attention.page = 16;
  EXPECT_EQ(choose(p, h200()).variant, "flash_mma");
}

// A query a sequence, side by side: a tile of one head would have one row.
TEST(AttentionLaunchTest, PackedDecodeHasItsHeadsTogether) {
  Problem p = attention_problem(64, 32, 8, 64, 64 * 8192, 128);
  p.attention.q_offsets = p.attention.kv_offsets = true;
  EXPECT_EQ(choose(p, h200()).variant, "flash_mma");
  p.batch_invariant = true;
  EXPECT_EQ(choose(p, h200()).variant, "hopper");
}

// How long sequences are, the GPU knows: the tile does not depend on what they are together.
TEST(AttentionLaunchTest, RaggedSequencesHaveOneTile) {
  Problem p = attention_problem(2, 8, 8, 4096, 4096, 128);
  p.attention.q_offsets = p.attention.kv_offsets = true;
  const attention_launch::HopperTile few = attention_launch::hopper_tile(p.attention);
  p.attention.keys = p.attention.queries = 1 << 20;
  EXPECT_EQ(attention_launch::hopper_tile(p.attention), few);
}

TEST(AttentionLaunchTest, TheHopperKernelSaysWhatItDoesNotTake) {
  const auto no = [](auto&& change) {
    Problem p = attention_problem(1, 8, 8, 256, 256, 128);
    change(p);
    return attention_launch::refuse_hopper(p, h200());
  };
  EXPECT_EQ(no([](Problem&) {}), "");
  EXPECT_NE(no([](Problem& p) { p.attention.dim = 80; }), "");
  EXPECT_NE(no([](Problem& p) { p.out = DType::f32; }), "");
  EXPECT_NE(no([](Problem& p) { p.attention.aligned = false; }), "");
  EXPECT_NE(no([](Problem& p) { p.attention.strided = false; }), "");
  EXPECT_NE(no([](Problem& p) { p.attention.page = 16; }), "");
  EXPECT_EQ(no([](Problem& p) { p.attention.lengths = true; }), "");
  EXPECT_NE(no([](Problem& p) { p.attention.alibi = true; }), "");
  EXPECT_NE(no([](Problem& p) { p.attention.split = 64; }), "");
}

}  // namespace
}  // namespace onepass
