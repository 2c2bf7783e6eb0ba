// The launches of the walk through attention are pure functions: every plan fits its GPU, has room
// for its matrices, or is refused.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "ops/attention/walk/plan.hpp"
#include "rows/packs.hpp"
#include "tests/support/attention.hpp"

namespace onepass {
namespace {

namespace geometry = ops::attention::geometry;

constexpr std::array kInMemory = {"naive", "fused_softmax", "fused_tuned"};
constexpr std::array kWalk = {"naive", "fused_softmax", "fused_tuned", "flash_wmma"};

Decision decision_of(std::string_view variant, const Problem& p) {
  Decision decision;
  const Status status = plan_variant(variant, p, h200(), decision);
  EXPECT_TRUE(status.ok()) << status.message();
  return decision;
}

ops::attention::WalkLaunch launch_of(std::string_view variant, const Problem& p) {
  return std::get<ops::attention::WalkLaunch>(decision_of(variant, p).launch);
}

std::string refusal_of(std::string_view variant, const Problem& p, const Machine& m = h200()) {
  return find_variant(Op::attention, variant)->refuses(p, m);
}

TEST(AttentionWalkTest, ReadInOrderBeforeWhatShips) {
  std::vector<std::string_view> names;
  for (const Variant& v : variants(Op::attention)) {
    if (v.device == Device::cuda) names.push_back(v.name);
  }
  ASSERT_GT(names.size(), kWalk.size());
  EXPECT_TRUE(std::equal(kWalk.begin(), kWalk.end(), names.begin()));
  for (const char* name : kWalk) {
    EXPECT_EQ(find_variant(Op::attention, name)->role, Role::teach) << name;
  }
}

TEST(AttentionWalkTest, ABlockAQueryThenABlockATile) {
  const Problem p = attention_problem(2, 6, 2, 129, 65, 48);
  EXPECT_EQ(launch_of("naive", p).blocks, 2 * 6 * 129);
  EXPECT_EQ(launch_of("naive", p).threads, 1024);
  EXPECT_EQ(launch_of("fused_softmax", p).threads, 1024);
  EXPECT_EQ(launch_of("fused_tuned", p).threads, 256);
  EXPECT_EQ(launch_of("fused_tuned", p).shared_bytes, 0U);
  EXPECT_EQ(launch_of("flash_wmma", p).blocks, 2 * 6 * 3);
  EXPECT_EQ(launch_of("flash_wmma", p).threads, 128);
  EXPECT_EQ(launch_of("flash_wmma", p).scratch_bytes, 0U);
}

TEST(AttentionWalkTest, MatricesLieSideBySideInWholeTiles) {
  for (const std::int64_t queries : {1, 63, 64, 65, 1023}) {
    for (const std::int64_t keys : {1, 64, 129, 2048}) {
      for (const int dim : {16, 64, 80, 256}) {
        const Problem p = attention_problem(3, 6, 2, queries, keys, dim);
        const ops::attention::Scratch s = ops::attention::scratch_of(p.attention);
        EXPECT_EQ(s.queries % ops::attention::kTile, 0);
        EXPECT_EQ(s.keys % ops::attention::kTile, 0);
        EXPECT_EQ(s.columns % ops::attention::kTile, 0);
        EXPECT_GE(s.queries, queries);
        EXPECT_GE(s.keys, keys);
        EXPECT_GE(s.columns, dim);
        EXPECT_LT(s.queries - queries, ops::attention::kTile);
        const auto square = static_cast<std::size_t>(3 * 6 * s.queries * s.keys);
        EXPECT_EQ(s.transposed, 0U);
        EXPECT_EQ(s.scores, static_cast<std::size_t>(3 * 2 * dim * s.keys * 2));
        EXPECT_EQ(s.weights - s.scores, square * 4);
        EXPECT_EQ(s.sums - s.weights, square * 2);
        EXPECT_EQ(s.bytes - s.sums, static_cast<std::size_t>(3 * 6 * s.queries * s.columns * 4));
        for (const std::size_t at : {s.scores, s.weights, s.sums}) EXPECT_EQ(at % 256, 0U);
        EXPECT_EQ(geometry::square_bytes(p.attention), static_cast<double>(s.sums - s.scores));
        for (const char* name : kInMemory) EXPECT_EQ(launch_of(name, p).scratch_bytes, s.bytes);
      }
    }
  }
}

TEST(AttentionWalkTest, TheKernelsSeeTheMatricesThatWerePlanned) {
  const Problem p = attention_problem(3, 6, 2, 100, 200, 80);
  const ops::attention::Attention<F16> a{
      .batch = 3, .heads = 6, .kv_heads = 2, .queries = 100, .keys = 200, .dim = 80};
  EXPECT_EQ(ops::attention::scratch_of(a).bytes, ops::attention::scratch_of(p.attention).bytes);
  EXPECT_EQ(ops::attention::scratch_of(a).sums, ops::attention::scratch_of(p.attention).sums);
}

TEST(AttentionWalkTest, ScoresInMemoryHaveALimit) {
  for (const char* name : kInMemory) {
    EXPECT_EQ(refusal_of(name, attention_problem(1, 16, 16, 8192, 8192, 64)), "") << name;
    EXPECT_EQ(refusal_of(name, attention_problem(1, 32, 32, 16384, 16384, 64)),
              "its scores in memory would take more than 8 GiB");
    const std::int64_t most = kMost32;
    EXPECT_NE(refusal_of(name, attention_problem(1 << 20, 64, 64, most, most, 256)), "") << name;
  }
  EXPECT_EQ(refusal_of("flash_wmma", attention_problem(1, 32, 32, 16384, 16384, 64)), "");
}

// What is not refused can be launched: blocks are counted with 31 bits, those of the
// products and of kᵀ, too.
TEST(AttentionWalkTest, BlocksFitALaunch) {
  const std::int64_t most = kMost32;
  for (const std::int64_t batch : {1LL, 1LL << 12, 1LL << 20}) {
    for (const std::int64_t queries : {1LL, 1LL << 14, 1LL << 24, static_cast<long long>(most)}) {
      for (const std::int64_t keys : {1LL, 1LL << 14, 1LL << 24}) {
        for (const int dim : {16, 256}) {
          const Problem p = attention_problem(batch, 8, 8, queries, keys, dim);
          for (const char* name : kWalk) {
            if (!refusal_of(name, p).empty()) continue;
            EXPECT_GT(launch_of(name, p).blocks, 0) << name;
            EXPECT_LE(launch_of(name, p).blocks, kMostBlocks) << name;
          }
          if (!refusal_of("naive", p).empty()) continue;
          const ops::attention::Scratch s = ops::attention::scratch_of(p.attention);
          const std::int64_t tile = ops::attention::kTile;
          EXPECT_LE(batch * 8 * (s.queries / tile) * (s.keys / tile), kMostBlocks);
          EXPECT_LE(batch * 8 * (s.queries / tile) * (s.columns / tile), kMostBlocks);
          EXPECT_LE(batch * 8 * (s.keys / 32) * ceil_div(dim, 32), kMostBlocks);
        }
      }
    }
  }
}

TEST(AttentionWalkTest, FlashTilesFitWhereTheyAreNotRefused) {
  EXPECT_EQ(geometry::flash_bytes(64), 64512U);
  EXPECT_EQ(geometry::flash_bytes(128), 97280U);
  EXPECT_EQ(geometry::flash_bytes(256), 162816U);
  Machine small = h200();
  small.gpu.sm = 86;
  small.gpu.block_shared = 99 << 10;
  EXPECT_EQ(refusal_of("flash_wmma", attention_problem(1, 1, 1, 64, 64, 128), small), "");
  EXPECT_EQ(refusal_of("flash_wmma", attention_problem(1, 1, 1, 64, 64, 256), small),
            "its tiles do not fit into this GPU's shared memory");
  EXPECT_EQ(refusal_of("naive", attention_problem(1, 1, 1, 64, 64, 256), small), "");
}

TEST(AttentionWalkTest, RefusesWhatItsKernelsCannotDo) {
  for (const char* name : kWalk) {
    const auto refuses = [&](auto change) {
      Problem p = attention_problem(2, 8, 2, 65, 129, 64);
      change(p, p.attention);
      return refusal_of(name, p);
    };
    using P = Problem;
    using A = AttentionFacts;
    EXPECT_EQ(refuses([](P&, A&) {}), "") << name;
    EXPECT_EQ(refuses([](P&, A& a) { a.causal = true; }), "") << name;
    EXPECT_EQ(refuses([](P& p, A&) { p.in = p.out = DType::f16; }), "") << name;
    EXPECT_EQ(refuses([](P&, A& a) { a.strided = false; }), "") << name;
    EXPECT_EQ(refuses([](P& p, A&) { p.out = DType::f32; }),
              "it takes f16 and bf16, and gives the same");
    EXPECT_EQ(refuses([](P& p, A&) { p.in = p.out = DType::f32; }),
              "it takes f16 and bf16, and gives the same");
    EXPECT_EQ(refuses([](P& p, A&) { p.wants_lse = true; }), "it writes no lse");
    EXPECT_EQ(refuses([](P&, A& a) { a.dim_v = 32; }), "its values have the dim of its keys");
    EXPECT_EQ(refuses([](P&, A& a) { a.dim = 24; }), "its dims are multiples of 16, up to 256");
    EXPECT_EQ(refuses([](P&, A& a) { a.dim = 272; }), "its dims are multiples of 16, up to 256");
    EXPECT_EQ(refuses([](P&, A& a) { a.aligned = false; }),
              "its tokens must begin at multiples of 16 bytes");
    EXPECT_EQ(refuses([](P&, A& a) { a.window_left = 3; }), "it takes no window");
    EXPECT_EQ(refuses([](P&, A& a) { a.window_right = 3; }), "it takes no window");
    EXPECT_EQ(refuses([](P&, A& a) { a.split = 64; }), "it does not cut keys");
    EXPECT_EQ(refuses([](P&, A& a) { a.keys = 0; }), "it needs at least one key");
    for (bool A::*fact : {&A::lengths, &A::q_offsets, &A::kv_offsets}) {
      EXPECT_EQ(refuses([&](P&, A& a) { a.*fact = true; }),
                "its sequences are all alike, and not in pages");
    }
    for (bool A::*fact : {&A::additive, &A::boolean, &A::alibi, &A::sinks, &A::softcap}) {
      EXPECT_EQ(refuses([&](P&, A& a) { a.*fact = true; }),
                "it takes no mask tensor, alibi, sinks or softcap");
    }
    EXPECT_EQ(refusal_of(name, attention_problem(1, 1, 1, 1, 1, 16), known_machines()[0]),
              "it runs on a GPU");
    Machine old = h200();
    old.gpu.sm = 75;
    EXPECT_EQ(refusal_of(name, attention_problem(1, 1, 1, 1, 1, 16), old), "it needs sm_80");
  }
}

TEST(AttentionWalkTest, PlannedBytesCountTheScores) {
  const Problem p = attention_problem(1, 1, 1, 1024, 1024, 64);
  const auto planned = [&](std::string_view name) {
    return planned_bytes(p, decision_of(name, p), h200());
  };
  EXPECT_EQ(planned("flash_wmma"), least_bytes(p));
  EXPECT_GT(planned("fused_softmax"), least_bytes(p) + 12.0 * 1024 * 1024);
  EXPECT_EQ(planned("fused_softmax"), planned("fused_tuned"));
  EXPECT_EQ(planned("naive") - planned("fused_softmax"), 16.0 * 1024 * 1024);
}

}  // namespace
}  // namespace onepass
