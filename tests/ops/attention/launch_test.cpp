// What of attention on a GPU is decided without one: which kernel, how keys are cut, what is
// refused.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"
#include "tests/support/attention.hpp"

namespace onepass {
namespace {

using gpu_attention::FlashLaunch;

FlashLaunch flash_of(const Problem& p, const Machine& m = h200()) {
  return std::get<FlashLaunch>(choose(p, m).launch);
}

// Whole warpgroups of the first tile are before the first query, and none after the last.
TEST(AttentionLaunchTest, TheFirstTileUnderADiagonalHasFewerQueries) {
  using gpu_attention::hopper_lead;
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
    return gpu_attention::hopper(p, h200());
  };
  EXPECT_EQ(plan(1, 12, 1024, 64).tile.threads(), 3 * 128);  // 72 and 96 tiles
  EXPECT_EQ(plan(1, 12, 1024, 64).blocks, 96);
  EXPECT_EQ(plan(4, 12, 1024, 64).tile.threads(), 3 * 128);        // 288 and 384
  EXPECT_EQ(plan(1, 16, 4096, 64).tile.threads(), 4 * 128);        // 352 and 512
  EXPECT_EQ(plan(4, 32, 4096, 64).tile.threads(), 4 * 128);        // 2816 and 4096
  EXPECT_EQ(plan(64, 32, 128, 64).tile.threads(), 3 * 128);        // as many
  EXPECT_EQ(plan(4, 32, 4096, 128).tile.threads(), 3 * 128);       // never three
  EXPECT_EQ(plan(1, 12, 1024, 64, true).tile.threads(), 4 * 128);  // whatever the batch
}

TEST(AttentionLaunchTest, DecodeHasAWarpForEachScheduler) {
  const auto warps = [](Problem p, std::int64_t page = 0) {
    p.attention.page = page;
    return flash_of(p).threads / 32;
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
  const auto chosen = [](const Problem& p) { return std::string(choose(p, h200()).variant()); };
  EXPECT_EQ(chosen(attention_problem(4, 16, 16, 4096, 4096, 128)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(4, 16, 16, 4096, 4096, 80)), "gpu_flash");
  EXPECT_EQ(chosen(attention_problem(1, 1, 1, 1024, 1024, 64)), "gpu_flash");  // keys are shared
  EXPECT_EQ(chosen(attention_problem(1, 3, 3, 1024, 1024, 64)), "gpu_flash");  // 24 tiles
  EXPECT_EQ(chosen(attention_problem(1, 4, 4, 1024, 1024, 64)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(1, 8, 8, 512, 512, 64)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(1, 1, 1, 1024, 1024, 128)), "gpu_flash");
  EXPECT_EQ(chosen(attention_problem(1, 2, 2, 1024, 1024, 128)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(1, 1, 1, 2048, 2048, 128)), "gpu_flash");
  EXPECT_EQ(chosen(attention_problem(1, 32, 32, 64, 4096, 128)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(1, 32, 32, 64, 8192, 128)), "gpu_flash");
  EXPECT_EQ(chosen(attention_problem(1, 32, 8, 1, 8192, 128)), "gpu_decode");
  EXPECT_EQ(chosen(attention_problem(1, 32, 8, 4, 8192, 128)), "gpu_decode");
  EXPECT_EQ(chosen(attention_problem(1, 32, 8, 5, 8192, 128)), "gpu_flash");
  EXPECT_EQ(chosen(attention_problem(64, 32, 8, 5, 8192, 128)), "gpu_flash");  // heads together
  EXPECT_EQ(chosen(attention_problem(64, 32, 8, 64, 8192, 128)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(64, 32, 32, 20, 8192, 128)), "gpu_hopper");
  EXPECT_EQ(chosen(attention_problem(4, 16, 16, 4096, 4096, 128, DType::f32)), "gpu_simt");
  Problem masked = attention_problem(4, 16, 16, 4096, 4096, 128);
  masked.attention.additive = true;
  EXPECT_EQ(chosen(masked), "gpu_flash");
  Machine ampere = h200();
  ampere.gpu.sm = 80;
  EXPECT_EQ(choose(attention_problem(4, 16, 16, 4096, 4096, 128), ampere).variant(), "gpu_flash");
  ampere.gpu.sm = 75;
  EXPECT_EQ(choose(attention_problem(4, 16, 16, 4096, 4096, 128), ampere).variant(), "gpu_simt");
}

// As cudaOccupancyMaxActiveClusters says of an H200 with room for one block per SM, and for two.
TEST(AttentionLaunchTest, ClustersLeaveSomeSmsOut) {
  using gpu_attention::clustered_blocks;
  EXPECT_EQ(clustered_blocks(132, 1), 132);
  EXPECT_EQ(clustered_blocks(132, 8), 15 * 8);
  EXPECT_EQ(clustered_blocks(132, 16), 7 * 16);
  EXPECT_EQ(clustered_blocks(264, 8), 30 * 8);
  EXPECT_EQ(clustered_blocks(264, 16), 14 * 16);
}

// Queries by the tile, few of them: blocks of a cluster share the keys, and nothing
// goes through memory.
TEST(AttentionLaunchTest, ClustersShareKeysWhereTilesAreFew) {
  const FlashLaunch head = flash_of(attention_problem(1, 1, 1, 1024, 1024, 64));
  EXPECT_EQ(head.cluster, 8);
  EXPECT_EQ(head.parts, 1);
  EXPECT_EQ(head.blocks, 8 * 8);
  EXPECT_EQ(head.scratch_bytes, 0U);
  const FlashLaunch many =
      gpu_attention::mma(attention_problem(64, 32, 32, 4096, 4096, 128), h200());
  EXPECT_EQ(many.cluster, 1);
  EXPECT_EQ(many.parts, 1);
  Machine ampere = h200();
  ampere.gpu.sm = 80;
  const FlashLaunch before = flash_of(attention_problem(1, 1, 1, 1024, 1024, 64), ampere);
  EXPECT_EQ(before.cluster, 1);
  EXPECT_GE(before.parts, 8);
}

// What parts of many rows found would take longer to join than to find.
TEST(AttentionLaunchTest, PartsAreOfFewRows) {
  const auto sharing = [](std::int64_t heads, std::int64_t queries, std::int64_t keys, int dim) {
    const FlashLaunch plan =
        gpu_attention::mma(attention_problem(1, heads, heads, queries, keys, dim), h200());
    return std::pair(plan.parts, plan.cluster);
  };
  EXPECT_EQ(sharing(8, 1024, 1024, 64), std::pair(1, 2));
  EXPECT_EQ(sharing(1, 512, 512, 64), std::pair(1, 8));
  EXPECT_EQ(sharing(1, 2048, 2048, 128), std::pair(1, 8));
  EXPECT_EQ(sharing(1, 4096, 4096, 128), std::pair(8, 1));
  EXPECT_EQ(sharing(1, 2048, 2048, 256), std::pair(8, 1));
  EXPECT_EQ(sharing(16, 64, 16384, 64), std::pair(16, 1));
}

// Keys are loaded by the 128 where a head has dim 64 or 192 and its rows' keys are one block's;
// what is planned with is what the kernel takes.
TEST(AttentionLaunchTest, TilesDoubleWhereNobodySharesThem) {
  using namespace gpu_attention;
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
  const FlashLaunch one = mma(attention_problem(1, 1, 1, 1024, 1024, 64), h200());
  EXPECT_EQ(one.cluster, 8);
  EXPECT_FALSE(flash_doubles({64, 64}, 128, 1024, false, one, h200()));
  EXPECT_FALSE(one.tile_keys == 2 * kFlashKeys);
  EXPECT_TRUE(mma(many, h200()).tile_keys == 2 * kFlashKeys);
  const Problem wide = attention_problem(16, 8, 8, 1024, 1024, 192);
  EXPECT_TRUE(mma(wide, h200()).tile_keys == 2 * kFlashKeys);
  Machine small = h200();
  small.gpu.block_shared = 130 << 10;  // not enough for that
  const FlashLaunch plan = mma(wide, small);
  EXPECT_FALSE(plan.tile_keys == 2 * kFlashKeys);
  EXPECT_LE(plan.shared_bytes, std::size_t{130} << 10);
  // 64 rows and keys, so that an SM has two blocks.
  const FlashLaunch widest = mma(attention_problem(16, 8, 8, 1024, 1024, 256), h200());
  EXPECT_EQ(widest.shared_bytes, (64U + 64 + 64) * 512);
  EXPECT_EQ(widest.threads, 128);
}

// A few queries: the memory is the limit, and every SM is wanted.
TEST(AttentionLaunchTest, DecodeCutsKeysUntilEverySmHasABlock) {
  const FlashLaunch one = flash_of(attention_problem(1, 32, 8, 1, 131072, 128));
  EXPECT_EQ(one.cluster, 1);
  EXPECT_GE(one.blocks, 8 * 16);
  EXPECT_GE(flash_of(attention_problem(1, 32, 8, 1, 8192, 128)).blocks, 119);  // of 132
  EXPECT_EQ(one.part_keys % gpu_attention::kFlashKeys, 0);
  EXPECT_GE(one.part_keys * one.parts, 131072);
  EXPECT_LT(one.part_keys * (one.parts - 1), 131072);
  EXPECT_EQ(one.threads, 4 * 32);  // of whom each warp leaves what it found
  EXPECT_EQ(one.scratch_bytes, static_cast<std::size_t>(one.parts) * 4 * 32 * 129 * 4);
  EXPECT_EQ(flash_of(attention_problem(2, 32, 8, 1, 8192, 128)).blocks, 16 * 8);
  const FlashLaunch many = flash_of(attention_problem(32, 32, 8, 1, 8192, 128));
  EXPECT_EQ(many.parts, 1);
  EXPECT_EQ(many.blocks, 32 * 8);
}

// Where a row has few parts their warps do not join what they found; where it has many, or one,
// they do, and where the cut is given and a row's bits shall not depend on how many there are.
TEST(AttentionLaunchTest, WarpsOfFewPartsLeaveWhatTheyFound) {
  EXPECT_EQ(gpu_attention::left_by_part(1, 4), 1);
  EXPECT_EQ(gpu_attention::left_by_part(2, 4), 4);
  EXPECT_EQ(gpu_attention::left_by_part(32, 4), 4);
  EXPECT_EQ(gpu_attention::left_by_part(33, 4), 1);
  EXPECT_EQ(gpu_attention::left_by_part(16, 1), 1);
  const std::size_t of_part = std::size_t{32} * 129 * 4;
  Problem p = attention_problem(1, 32, 8, 1, 8192, 128);
  p.attention.split = 1024;
  EXPECT_EQ(flash_of(p).scratch_bytes, 8 * of_part);
  p.attention.split = 0;
  EXPECT_EQ(flash_of(p).scratch_bytes, flash_of(p).parts * 4 * of_part);
  p.batch_invariant = true;
  EXPECT_EQ(flash_of(p).scratch_bytes, flash_of(p).parts * of_part);
}

// What a block asks for is there on every GPU that it runs on.
TEST(AttentionLaunchTest, TeamsFitASmallSm) {
  Machine small = h200();
  small.gpu.sm = 86;
  small.gpu.block_shared = 99 * 1024;
  for (const int dim : {64, 128, 256}) {
    const Problem p = attention_problem(1, 32, 8, 1, 8192, dim);
    EXPECT_EQ(choose(p, small).variant(), "gpu_decode") << dim;
    EXPECT_LE(flash_of(p, small).shared_bytes, 99U * 1024) << dim;
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
        const Decision decision = choose(p, h200());
        const auto* flash = std::get_if<FlashLaunch>(&decision.launch);
        if (flash != nullptr) {
          EXPECT_EQ(flash->cluster, 1);
        }
        plans.emplace(decision.variant(), flash == nullptr ? 0 : flash->part_keys,
                      decision.plan().threads);
      }
      EXPECT_EQ(plans.size(), 1U) << queries << " " << page;
    }
  }
}

TEST(AttentionLaunchTest, APartIsWhatWasAskedForInTiles) {
  Problem p = attention_problem(4, 8, 8, 100, 1000, 64);
  p.attention.split = 100;
  EXPECT_EQ(choose(p, h200()).variant(), "gpu_flash");  // the Hopper kernel does not cut
  const FlashLaunch plan = flash_of(p);
  EXPECT_EQ(plan.part_keys, 128);
  EXPECT_EQ(plan.parts, 8);
  p.attention.split = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(flash_of(p).parts, 1);
}

// Sequences side by side: the tiles of all tokens, not as many for each sequence.
TEST(AttentionLaunchTest, ManyShortSequencesAreNotTooMany) {
  Problem p = attention_problem(512, 32, 8, 1 << 20, 1 << 20, 128);
  p.attention.q_offsets = p.attention.kv_offsets = true;
  EXPECT_EQ(gpu_attention::hopper_tiles(p.attention), 32 * ((1 << 20) / 128 + 512));
  EXPECT_EQ(choose(p, h200()).variant(), "gpu_hopper");
  p.attention.page = 16;
  EXPECT_EQ(choose(p, h200()).variant(), "gpu_flash");
}

// A query a sequence, side by side: a tile of one head would have one row.
TEST(AttentionLaunchTest, PackedDecodeHasItsHeadsTogether) {
  Problem p = attention_problem(64, 32, 8, 64, 64 * 8192, 128);
  p.attention.q_offsets = p.attention.kv_offsets = true;
  EXPECT_EQ(choose(p, h200()).variant(), "gpu_flash");
  p.batch_invariant = true;
  EXPECT_EQ(choose(p, h200()).variant(), "gpu_hopper");
}

// How long sequences are, the GPU knows: the tile does not depend on what they are together.
TEST(AttentionLaunchTest, RaggedSequencesHaveOneTile) {
  Problem p = attention_problem(2, 8, 8, 4096, 4096, 128);
  p.attention.q_offsets = p.attention.kv_offsets = true;
  const gpu_attention::HopperTile few = gpu_attention::hopper_tile(p.attention);
  p.attention.keys = p.attention.queries = 1 << 20;
  EXPECT_EQ(gpu_attention::hopper_tile(p.attention), few);
}

TEST(AttentionLaunchTest, NoKernelTakesFloat64OrValuesOfAnotherDim) {
  for (const Variant& v : variants(Op::attention)) {
    if (v.device != Device::cuda) continue;
    Problem p = attention_problem(1, 8, 8, 1, 256, 128);
    p.attention.dim_v = 64;
    EXPECT_NE(v.refuses(p, h200()), "") << v.name;
    p.attention.dim_v = 0;
    p.out = DType::f64;
    EXPECT_NE(v.refuses(p, h200()), "") << v.name;
    p.in = DType::f64;
    EXPECT_NE(v.refuses(p, h200()), "") << v.name;
  }
}

TEST(AttentionLaunchTest, TheHopperKernelSaysWhatItDoesNotTake) {
  const auto no = [](auto&& change) {
    Problem p = attention_problem(1, 8, 8, 256, 256, 128);
    change(p);
    return gpu_attention::refuse_hopper(p, h200());
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
