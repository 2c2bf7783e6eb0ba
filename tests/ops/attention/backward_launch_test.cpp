// What of attention's backward on a GPU is decided without one.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "ops/attention/check_backward.hpp"
#include "ops/attention/gpu/backward/hopper/plan.hpp"
#include "ops/attention/gpu/backward/plan.hpp"
#include "tests/support/attention.hpp"

namespace onepass {
namespace {

using gpu_attention::backward_flash;
using gpu_attention::backward_simt;
using gpu_attention::BackwardFlashLaunch;
using gpu_attention::BackwardSimtLaunch;
using gpu_attention::refuse_backward_flash;
using gpu_attention::refuse_backward_simt;

Problem backward_problem(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t queries, std::int64_t keys, int dim,
                         DType dtype = DType::f32) {
  Problem p = attention_problem(batch, heads, kv_heads, queries, keys, dim, dtype);
  p.op = Op::attention_backward;
  return p;
}

TEST(AttentionBackwardLaunchTest, AWarpOwnsARowOrAKey) {
  const BackwardSimtLaunch launch = backward_simt(backward_problem(3, 8, 2, 101, 50, 64), h200());
  EXPECT_EQ(launch.threads, 256);
  EXPECT_EQ(launch.query_blocks, 51 * 2 * 3);  // 404 rows of each kv head
  EXPECT_EQ(launch.key_blocks, 7 * 2 * 3);
  EXPECT_EQ(launch.columns, 4);
  EXPECT_EQ(launch.shared_bytes, (32U + 8) * (68 + 68) * 4);
}

TEST(AttentionBackwardLaunchTest, TheWorkspaceIsTwoNumbersPerQuery) {
  Problem p = backward_problem(3, 8, 2, 100, 50, 64);
  EXPECT_EQ(choose(p, h200()).scratch_bytes, 3U * 8 * 100 * 8);
  p.attention.keys = 5000;
  EXPECT_EQ(choose(p, h200()).scratch_bytes, 3U * 8 * 100 * 8);
  // With offsets 100 are all tokens.
  p.attention.q_offsets = true;
  EXPECT_EQ(choose(p, h200()).scratch_bytes, 8U * 100 * 8);
}

TEST(AttentionBackwardLaunchTest, EverySequenceHasBlocksForAllTokens) {
  Problem p = backward_problem(5, 4, 4, 160, 320, 64);
  const BackwardSimtLaunch dense = backward_simt(p, h200());
  p.attention.q_offsets = p.attention.kv_offsets = true;
  const BackwardSimtLaunch packed = backward_simt(p, h200());
  EXPECT_EQ(packed.query_blocks, dense.query_blocks);
  EXPECT_EQ(packed.query_blocks, 20 * 4 * 5);
  EXPECT_EQ(packed.key_blocks, 40 * 4 * 5);
}

TEST(AttentionBackwardLaunchTest, BlocksOfAnyDimsFitASmallSm) {
  for (int dim = 8; dim <= 512; dim += 8) {
    for (int dim_v = 8; dim_v <= 512; dim_v += 8) {
      Problem p = backward_problem(1, 2, 2, 64, 64, dim);
      p.attention.dim_v = dim_v;
      const BackwardSimtLaunch launch = backward_simt(p, h200());
      EXPECT_LE(launch.shared_bytes, 99U * 1024) << dim << " " << dim_v;
      EXPECT_GE(32 * launch.columns, std::max(dim, dim_v));
    }
  }
}

TEST(AttentionBackwardLaunchTest, WithoutQueriesOrHeadsNothingIsSummed) {
  for (const Problem& p :
       {backward_problem(2, 4, 4, 0, 9, 64), backward_problem(2, 0, 0, 9, 9, 64),
        backward_problem(2, 0, 2, 9, 9, 64), backward_problem(0, 4, 4, 9, 9, 64)}) {
    EXPECT_EQ(backward_simt(p, h200()).query_blocks, 0);
    EXPECT_EQ(backward_simt(p, h200()).key_blocks, 0);
    EXPECT_EQ(refuse_backward_simt(p, h200()), "");
  }
  const Problem no_keys = backward_problem(2, 4, 4, 9, 0, 64);
  EXPECT_GT(backward_simt(no_keys, h200()).query_blocks, 0);
  EXPECT_EQ(backward_simt(no_keys, h200()).key_blocks, 0);
}

TEST(AttentionBackwardLaunchTest, SimtTakesAnyOption) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Problem p = backward_problem(2, 4, 2, 100, 50, 72, dtype);
    p.out = DType::f32;
    AttentionFacts& a = p.attention;
    a.dim_v = 16;
    a.softcap = a.additive = a.boolean = a.alibi = a.sinks = a.lengths = true;
    a.d_lse = a.d_sinks = a.d_additive = a.accumulates = a.q_offsets = a.kv_offsets = true;
    a.aligned = a.strided = false;
    p.mixed_inputs = true;
    EXPECT_EQ(refuse_backward_simt(p, h200()), "");
    EXPECT_EQ(choose(p, h200()).variant(), "gpu_simt");
  }
}

TEST(AttentionBackwardLaunchTest, SimtSaysWhatItDoesNotTake) {
  const auto no = [](const Problem& p, const Machine& m = h200()) {
    return refuse_backward_simt(p, m);
  };
  EXPECT_EQ(no(backward_problem(1, 2, 2, 64, 64, 64), known_machines()[0]), "it runs on a GPU");
  EXPECT_EQ(no(backward_problem(1, 2, 2, 64, 64, 64, DType::f64)),
            "it takes and gives f32, f16 and bf16");
  EXPECT_EQ(no(backward_problem(1, 2, 2, std::int64_t{1} << 30, 64, 64)),
            "its rows and keys are counted with 31 bits");
  EXPECT_EQ(no(backward_problem(1, 8, 1, std::int64_t{1} << 28, 64, 64)),
            "its rows and keys are counted with 31 bits");
  EXPECT_EQ(no(backward_problem(1, 2, 2, 64, std::int64_t{1} << 30, 64)),
            "its rows and keys are counted with 31 bits");
  EXPECT_EQ(no(backward_problem(1 << 10, 64, 64, 1 << 20, 64, 64)),
            "it would be 8589934592 blocks");
  EXPECT_EQ(no(backward_problem(1 << 10, 64, 64, 64, 1 << 20, 64)),
            "it would be 8589934592 blocks");
  Machine small = h200();
  small.gpu.block_shared = 64 << 10;
  EXPECT_EQ(no(backward_problem(1, 2, 2, 64, 64, 512), small),
            "it needs 99072 bytes of shared memory per block");
}

// What z has besides q·k·scale, which the usual kernels are compiled without.
constexpr bool AttentionFacts::*kOptions[] = {&AttentionFacts::softcap, &AttentionFacts::alibi,
                                              &AttentionFacts::additive, &AttentionFacts::boolean};

TEST(AttentionBackwardLaunchTest, FlashTakesEveryOptionOnEveryMachine) {
  for (const std::string_view name : {"h200", "a100", "rtx-4090"}) {
    const Machine& m = *find_machine(name);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      for (const int dim : {8, 64, 72, 128}) {
        for (const auto option : kOptions) {
          Problem p = backward_problem(2, 4, 2, 100, 50, dim, dtype);
          EXPECT_FALSE(backward_flash(p, m).general);
          p.attention.*option = true;
          EXPECT_EQ(refuse_backward_flash(p, m), "") << name << " " << dim;
          EXPECT_TRUE(backward_flash(p, m).general);
          EXPECT_EQ(choose(p, m).variant(), "gpu_flash");
        }
      }
    }
  }
}

TEST(AttentionBackwardLaunchTest, WhatHidesByPlaceKeepsTheUsualKernels) {
  Problem p = backward_problem(2, 4, 2, 100, 50, 128, DType::bf16);
  const BackwardFlashLaunch plain = backward_flash(p, h200());
  EXPECT_EQ(plain.query_blocks, 4 * 2 * 2);
  EXPECT_EQ(plain.key_blocks, 1 * 2 * 2);
  EXPECT_EQ(plain.shared_bytes, (6U * 64 * 128 * 2) + (2U * 64 * 8));
  AttentionFacts& a = p.attention;
  a.causal = a.lengths = a.sinks = a.d_lse = a.d_sinks = a.accumulates = true;
  a.window_left = 9;
  EXPECT_EQ(backward_flash(p, h200()), plain);
}

// The registers hold 128 columns of dk and dv, and 256 of dq.
TEST(AttentionBackwardLaunchTest, SeveralBlocksSumWideGradients) {
  for (const auto& [dim, query_parts, key_parts] :
       {std::tuple(128, 1, 1), std::tuple(136, 1, 2), std::tuple(256, 1, 2), std::tuple(264, 2, 3),
        std::tuple(384, 2, 3), std::tuple(392, 2, 4), std::tuple(512, 2, 4)}) {
    const Problem p = backward_problem(2, 4, 2, 100, 50, dim, DType::bf16);
    const BackwardFlashLaunch launch = backward_flash(p, h200());
    EXPECT_EQ(launch.query_blocks, 4 * 2 * 2 * query_parts) << dim;
    EXPECT_EQ(launch.key_blocks, 1 * 2 * 2 * key_parts) << dim;
    EXPECT_EQ(launch.general, dim > 256);
  }
}

TEST(AttentionBackwardLaunchTest, WideTilesNeedTheSharedMemoryOfALargeSm) {
  const Problem p = backward_problem(1, 2, 2, 64, 64, 512, DType::f16);
  for (const std::string_view name : {"h200", "a100"}) {
    EXPECT_EQ(refuse_backward_flash(p, *find_machine(name)), "") << name;
    EXPECT_EQ(choose(p, *find_machine(name)).variant(), "gpu_flash");
  }
  const Machine& small = *find_machine("rtx-4090");
  EXPECT_EQ(refuse_backward_flash(p, small), "it needs 164096 bytes of shared memory per block");
  EXPECT_EQ(choose(p, small).variant(), "gpu_simt");
}

TEST(AttentionBackwardLaunchTest, FlashSaysWhatItDoesNotTake) {
  const Problem usual = backward_problem(1, 2, 2, 64, 64, 64, DType::bf16);
  EXPECT_EQ(refuse_backward_flash(usual, h200()), "");
  Problem p = usual;
  p.in = DType::f32;
  EXPECT_EQ(refuse_backward_flash(p, h200()), "it takes f16 and bf16");
  p = usual;
  p.mixed_inputs = true;
  EXPECT_EQ(refuse_backward_flash(p, h200()), "d_o has the dtype of q");
  p = usual;
  p.attention.aligned = false;
  EXPECT_EQ(refuse_backward_flash(p, h200()), "tokens begin at multiples of 16 bytes");
  p = usual;
  p.attention.dim_v = 128;
  EXPECT_EQ(refuse_backward_flash(p, h200()), "its values have the dim of its keys");
}

// No tile of o goes to tensor cores.
TEST(AttentionBackwardLaunchTest, OMayHaveAnotherDtype) {
  AttentionBackwardArgs args;
  for (Heads* t : {&args.q, &args.k, &args.v, &args.d_o, &args.d_q}) t->dtype = DType::bf16;
  args.o.dtype = DType::f32;
  EXPECT_FALSE(describe(args, false).mixed_inputs);
  args.d_o.dtype = DType::f32;
  EXPECT_TRUE(describe(args, false).mixed_inputs);
}

TEST(AttentionBackwardLaunchTest, APlanNamesTheGeneralKernels) {
  Problem p = backward_problem(1, 2, 2, 64, 32, 64, DType::bf16);
  EXPECT_EQ(backward_flash(p, h200()).plan().details, "dq=2 dk=2 dim=64 shared=50176");
  p.attention.boolean = true;
  EXPECT_EQ(backward_flash(p, h200()).plan().details, "dq=2 dk=2 dim=64 shared=51200 general");
}

TEST(AttentionBackwardLaunchTest, HopperTakesWhatHidesByPlace) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int dim : {8, 64, 72, 128}) {
      Problem p = backward_problem(2, 4, 2, 100, 50, dim, dtype);
      AttentionFacts& a = p.attention;
      EXPECT_EQ(choose(p, h200()).variant(), "gpu_hopper");
      a.causal = a.lengths = a.sinks = a.d_lse = a.d_sinks = a.accumulates = true;
      a.window_left = 9;
      EXPECT_EQ(choose(p, h200()).variant(), "gpu_hopper");
      EXPECT_EQ(choose(p, *find_machine("a100")).variant(), "gpu_flash");
    }
  }
}

TEST(AttentionBackwardLaunchTest, HopperSaysWhatItDoesNotTake) {
  const Problem usual = backward_problem(1, 2, 2, 64, 64, 64, DType::bf16);
  const auto no = [&](auto change) {
    Problem p = usual;
    change(p);
    EXPECT_NE(choose(p, h200()).variant(), "gpu_hopper");
    return gpu_attention::refuse_backward_hopper(p, h200());
  };
  EXPECT_EQ(no([](Problem& p) { p.in = p.out = DType::f32; }), "it takes f16 and bf16");
  EXPECT_EQ(no([](Problem& p) { p.attention.dim = 136; }), "it takes dims up to 128");
  EXPECT_EQ(no([](Problem& p) { p.attention.dim_v = 128; }), "its values have the dim of its keys");
  EXPECT_EQ(no([](Problem& p) { p.mixed_inputs = true; }), "d_o has the dtype of q");
  EXPECT_EQ(no([](Problem& p) { p.attention.q_offsets = true; }), "its sequences are not packed");
  EXPECT_EQ(no([](Problem& p) { p.attention.aligned = false; }),
            "tokens begin at multiples of 16 bytes");
  EXPECT_EQ(no([](Problem& p) { p.attention.strided = false; }), "its strides must be positive");
  EXPECT_EQ(no([](Problem& p) { p.batch_invariant = true; }),
            "it adds to dq in an order that depends on the batch");
  EXPECT_EQ(no([](Problem& p) { p.attention.keys = 0; }),
            "it needs at least one query and one key");
  EXPECT_EQ(no([](Problem& p) { p.attention.queries = std::int64_t{1} << 23; }),
            "it counts tiles of queries with 16 bits");
  for (const auto option : kOptions) {
    EXPECT_EQ(no([&](Problem& p) { p.attention.*option = true; }),
              "it hides keys by their place alone, without softcap, ALiBi or a mask in memory");
  }
}

// A float32 sum per element of the tiles of dq, and a counter per tile.
TEST(AttentionBackwardLaunchTest, HoppersWorkspaceIsLinearInTheQueries) {
  const auto launch = [](std::int64_t queries, int dim) {
    return gpu_attention::backward_hopper(
        backward_problem(3, 8, 2, queries, 5000, dim, DType::bf16), h200());
  };
  const auto small = launch(100, 128);
  EXPECT_EQ(small.query_tiles, 3 * 8 * 2);
  EXPECT_EQ(small.sums_at, 3U * 8 * 100 * 8);
  EXPECT_EQ(small.added_at - small.sums_at, 48U * 64 * 128 * 4);
  EXPECT_EQ(small.scratch_bytes - small.added_at, 48U * 4);
  EXPECT_EQ(small.blocks, 132);
  const auto narrow = launch(129, 40);
  EXPECT_EQ(narrow.dim, 64);
  EXPECT_EQ(narrow.query_tiles, 3 * 8 * 2);
  EXPECT_EQ(narrow.sums_at % 128, 0U);
  EXPECT_EQ(narrow.added_at - narrow.sums_at, 48U * 128 * 64 * 4);
}

// Under a diagonal two columns are a turn where blocks have more than one.
TEST(AttentionBackwardLaunchTest, HopperHasABlockPerTurnUpToOnePerSm) {
  Problem p = backward_problem(1, 4, 4, 1024, 1024, 128, DType::bf16);
  EXPECT_EQ(gpu_attention::backward_hopper(p, h200()).blocks, 32);
  p.attention.causal = true;
  EXPECT_EQ(gpu_attention::backward_hopper(p, h200()).blocks, 32);
  p.attention.batch = 5;
  EXPECT_EQ(gpu_attention::backward_hopper(p, h200()).blocks, 80);
  p.attention.batch = 50;
  EXPECT_EQ(gpu_attention::backward_hopper(p, h200()).blocks, 132);
  EXPECT_EQ(choose(p, h200()).plan().details, "tile=64x128 dim=128");
}

TEST(AttentionBackwardLaunchTest, APlanNamesItsBlocks) {
  const Plan plan = choose(backward_problem(1, 2, 2, 64, 32, 64), h200()).plan();
  EXPECT_EQ(plan.variant, "gpu_simt");
  EXPECT_EQ(plan.threads, 256);
  EXPECT_EQ(plan.blocks, 24);
  EXPECT_EQ(plan.details, "dq=16 dk=8 tile=32 shared=21760");
}

}  // namespace
}  // namespace onepass
