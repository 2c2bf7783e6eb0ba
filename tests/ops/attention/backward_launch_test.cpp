// What of attention's backward on a GPU is decided without one.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <string>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "ops/attention/gpu/backward/plan.hpp"
#include "tests/support/attention.hpp"

namespace onepass {
namespace {

using gpu_attention::backward_simt;
using gpu_attention::BackwardSimtLaunch;
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

TEST(AttentionBackwardLaunchTest, APlanNamesItsBlocks) {
  const Plan plan = choose(backward_problem(1, 2, 2, 64, 32, 64), h200()).plan();
  EXPECT_EQ(plan.variant, "gpu_simt");
  EXPECT_EQ(plan.threads, 256);
  EXPECT_EQ(plan.blocks, 24);
  EXPECT_EQ(plan.details, "dq=16 dk=8 tile=32 shared=21760");
}

}  // namespace
}  // namespace onepass
