// The launches of the walk through attention's backward are pure functions: every plan fits its
// GPU, has room for its matrices, or is refused.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "ops/attention/walk/backward_plan.hpp"
#include "rows/packs.hpp"
#include "tests/support/attention.hpp"

namespace onepass {
namespace {

namespace walk = ops::attention;

constexpr std::array kWalk = {"backward_naive", "backward_wmma"};

Problem backward_problem(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t queries, std::int64_t keys, int dim,
                         DType dtype = DType::bf16) {
  Problem p = attention_problem(batch, heads, kv_heads, queries, keys, dim, dtype);
  p.op = Op::attention_backward;
  return p;
}

Decision decision_of(std::string_view variant, const Problem& p) {
  Decision decision;
  const Status status = plan_variant(variant, p, h200(), decision);
  EXPECT_TRUE(status.ok()) << status.message();
  return decision;
}

walk::WalkLaunch launch_of(std::string_view variant, const Problem& p) {
  return std::get<walk::WalkLaunch>(decision_of(variant, p).launch);
}

std::string refusal_of(std::string_view variant, const Problem& p, const Machine& m = h200()) {
  return find_variant(Op::attention_backward, variant)->refuses(p, m);
}

TEST(AttentionBackwardWalkTest, ReadInOrderBeforeWhatShips) {
  std::vector<std::string_view> names;
  for (const Variant& v : variants(Op::attention_backward)) {
    if (v.device == Device::cuda) names.push_back(v.name);
  }
  ASSERT_GT(names.size(), kWalk.size());
  EXPECT_TRUE(std::equal(kWalk.begin(), kWalk.end(), names.begin()));
  for (const char* name : kWalk) {
    EXPECT_EQ(find_variant(Op::attention_backward, name)->role, Role::teach) << name;
  }
}

TEST(AttentionBackwardWalkTest, ABlockAQueryThenABlockAnOwner) {
  const Problem p = backward_problem(2, 6, 2, 129, 65, 48);
  EXPECT_EQ(launch_of("backward_naive", p).blocks, 2 * 6 * 129);
  EXPECT_EQ(launch_of("backward_naive", p).threads, 256);
  EXPECT_EQ(launch_of("backward_naive", p).shared_bytes, 0U);
  EXPECT_EQ(walk::key_tiles_of(p.attention), 2 * 2 * 2);
  EXPECT_EQ(walk::query_tiles_of(p.attention), 2 * 6 * 3);
  EXPECT_EQ(launch_of("backward_wmma", p).blocks, 2 * 2 * 2 + 2 * 6 * 3);
  EXPECT_EQ(launch_of("backward_wmma", p).threads, 256);
  EXPECT_EQ(launch_of("backward_wmma", p).scratch_bytes, 2U * 6 * 129 * 8);
}

TEST(AttentionBackwardWalkTest, MatricesLieSideBySideInWholeTiles) {
  for (const std::int64_t queries : {1, 63, 64, 65, 1023}) {
    for (const std::int64_t keys : {1, 64, 129, 2048}) {
      const Problem p = backward_problem(3, 6, 2, queries, keys, 80);
      const walk::BackwardScratch s = walk::backward_scratch_of(p.attention);
      EXPECT_EQ(s.queries % walk::kTile, 0);
      EXPECT_EQ(s.keys % walk::kTile, 0);
      EXPECT_GE(s.queries, queries);
      EXPECT_GE(s.keys, keys);
      EXPECT_LT(s.queries - queries, walk::kTile);
      EXPECT_LT(s.keys - keys, walk::kTile);
      const auto pairs = static_cast<std::size_t>(3 * 6 * s.queries * s.keys);
      EXPECT_GE(s.scores, walk::facts_bytes(p.attention));
      EXPECT_EQ(s.d_weights - s.scores, pairs * 4);
      EXPECT_EQ(s.weights - s.d_weights, pairs * 4);
      EXPECT_EQ(s.d_scores - s.weights, pairs * 2);
      EXPECT_EQ(s.bytes - s.d_scores, pairs * 2);
      for (const std::size_t at : {s.scores, s.d_weights, s.weights, s.d_scores}) {
        EXPECT_EQ(at % 256, 0U);
      }
      EXPECT_EQ(walk::geometry::pair_bytes(p.attention), static_cast<double>(s.bytes - s.scores));
      EXPECT_EQ(launch_of("backward_naive", p).scratch_bytes, s.bytes);
    }
  }
}

TEST(AttentionBackwardWalkTest, TheKernelsSeeWhatWasPlanned) {
  const Problem p = backward_problem(3, 6, 2, 100, 200, 80);
  const walk::Backward<F16> a{
      {.batch = 3, .heads = 6, .kv_heads = 2, .queries = 100, .keys = 200, .dim = 80},
      {},
      {},
      {},
      {},
      {}};
  EXPECT_EQ(walk::backward_scratch_of(a).bytes, walk::backward_scratch_of(p.attention).bytes);
  EXPECT_EQ(walk::backward_scratch_of(a).scores, walk::backward_scratch_of(p.attention).scores);
  EXPECT_EQ(walk::key_tiles_of(a), walk::key_tiles_of(p.attention));
  EXPECT_EQ(walk::query_tiles_of(a), walk::query_tiles_of(p.attention));
  EXPECT_EQ(a.rows(), p.rows);
  EXPECT_EQ(a.sharing(), 3);
}

// The queries from first_query() on see a key, those before do not.
TEST(AttentionBackwardWalkTest, AKeyIsSeenFromItsFirstQueryOn) {
  for (const std::int64_t queries : {1, 5, 64, 70}) {
    for (const std::int64_t keys : {1, 5, 64, 70}) {
      for (const bool causal : {false, true}) {
        walk::Backward<F16> a{};
        a.queries = queries;
        a.keys = keys;
        a.causal = causal;
        for (int key = 0; key < keys; ++key) {
          for (int query = 0; query < queries; ++query) {
            EXPECT_EQ(query >= a.first_query(key), key < a.end(query));
          }
        }
      }
    }
  }
}

TEST(AttentionBackwardWalkTest, ScoresInMemoryHaveALimit) {
  EXPECT_EQ(refusal_of("backward_naive", backward_problem(1, 10, 10, 8192, 8192, 64)), "");
  const Problem more = backward_problem(1, 16, 16, 8192, 8192, 64);
  EXPECT_EQ(refusal_of("backward_naive", more), "its scores in memory would take more than 8 GiB");
  EXPECT_EQ(refusal_of("backward_wmma", more), "");
  const Problem most = backward_problem(1 << 20, 64, 64, kMost32, kMost32, 256);
  EXPECT_EQ(refusal_of("backward_naive", most), "its scores in memory would take more than 8 GiB");
  EXPECT_EQ(refusal_of("backward_wmma", most), "it has more blocks than a launch");
}

// What is not refused can be launched: blocks are counted with 31 bits, those of the products and
// of the queries' facts, too.
TEST(AttentionBackwardWalkTest, BlocksFitALaunch) {
  const std::int64_t most = kMost32;
  for (const std::int64_t batch : {1LL, 1LL << 12, 1LL << 20}) {
    for (const std::int64_t queries : {1LL, 1LL << 14, 1LL << 24, static_cast<long long>(most)}) {
      for (const std::int64_t keys : {1LL, 1LL << 14, 1LL << 24}) {
        const Problem p = backward_problem(batch, 8, 8, queries, keys, 256);
        for (const char* name : kWalk) {
          if (!refusal_of(name, p).empty()) continue;
          EXPECT_GT(launch_of(name, p).blocks, 0) << name;
          EXPECT_LE(launch_of(name, p).blocks, kMostBlocks) << name;
          EXPECT_LE(ceil_div(p.rows, walk::kFactsThreads / 32), kMostBlocks) << name;
        }
        if (!refusal_of("backward_naive", p).empty()) continue;
        const walk::BackwardScratch s = walk::backward_scratch_of(p.attention);
        const std::int64_t tile = walk::kTile;
        EXPECT_LE(batch * 8 * (s.queries / tile) * (s.keys / tile), kMostBlocks);
        EXPECT_LE(batch * 8 * (s.queries / tile) * (256 / tile), kMostBlocks);
        EXPECT_LE(batch * 8 * (s.keys / tile) * (256 / tile), kMostBlocks);
      }
    }
  }
}

TEST(AttentionBackwardWalkTest, TilesFitWhereTheyAreNotRefused) {
  EXPECT_EQ(walk::geometry::backward_wmma_bytes(64), 92672U);
  EXPECT_EQ(walk::geometry::backward_wmma_bytes(128), 125440U);
  EXPECT_EQ(walk::geometry::backward_wmma_bytes(256), 190976U);
  Machine small = h200();
  small.gpu.sm = 86;
  small.gpu.block_shared = 99 << 10;
  EXPECT_EQ(refusal_of("backward_wmma", backward_problem(1, 1, 1, 64, 64, 64), small), "");
  EXPECT_EQ(refusal_of("backward_wmma", backward_problem(1, 1, 1, 64, 64, 128), small),
            "its tiles do not fit into this GPU's shared memory");
  EXPECT_EQ(refusal_of("backward_naive", backward_problem(1, 1, 1, 64, 64, 256), small), "");
}

// As the forward's steps, and what only a backward may have.
TEST(AttentionBackwardWalkTest, RefusesWhatItsKernelsCannotDo) {
  for (const char* name : kWalk) {
    const auto refuses = [&](auto change) {
      Problem p = backward_problem(2, 8, 2, 65, 129, 64);
      change(p, p.attention);
      return refusal_of(name, p);
    };
    using P = Problem;
    using A = AttentionFacts;
    EXPECT_EQ(refuses([](P&, A&) {}), "") << name;
    EXPECT_EQ(refuses([](P&, A& a) { a.causal = true; }), "") << name;
    EXPECT_EQ(refuses([](P&, A& a) { a.deterministic = true; }), "") << name;
    EXPECT_EQ(refuses([](P& p, A&) { p.in = p.out = DType::f16; }), "") << name;
    EXPECT_EQ(refuses([](P& p, A&) { p.out = DType::f32; }),
              "it takes f16 and bf16, and gives the same");
    EXPECT_EQ(refuses([](P& p, A&) { p.in = p.out = DType::f32; }),
              "it takes f16 and bf16, and gives the same");
    EXPECT_EQ(refuses([](P& p, A&) { p.mixed_inputs = true; }), "o and d_o have the dtype of q");
    EXPECT_EQ(refuses([](P&, A& a) { a.d_lse = true; }), "it takes no gradient of lse");
    EXPECT_EQ(refuses([](P&, A& a) { a.accumulates = true; }), "it overwrites the gradients");
    EXPECT_EQ(refuses([](P&, A& a) { a.dim_v = 32; }), "its values have the dim of its keys");
    EXPECT_EQ(refuses([](P&, A& a) { a.dim = 24; }), "its dims are multiples of 16, up to 256");
    EXPECT_EQ(refuses([](P&, A& a) { a.aligned = false; }),
              "its tokens must begin at multiples of 16 bytes");
    EXPECT_EQ(refuses([](P&, A& a) { a.window_left = 3; }), "it takes no window");
    EXPECT_EQ(refuses([](P&, A& a) { a.keys = 0; }), "it needs at least one key");
    for (std::int64_t A::*count : {&A::queries, &A::heads, &A::batch}) {
      EXPECT_EQ(refuses([&](P&, A& a) { a.*count = 0; }), "it needs at least one query");
    }
    for (bool A::*fact : {&A::lengths, &A::q_offsets, &A::kv_offsets}) {
      EXPECT_EQ(refuses([&](P&, A& a) { a.*fact = true; }),
                "its sequences are all alike, and not in pages");
    }
    for (bool A::*fact : {&A::additive, &A::boolean, &A::alibi, &A::sinks, &A::softcap}) {
      EXPECT_EQ(refuses([&](P&, A& a) { a.*fact = true; }),
                "it takes no mask tensor, alibi, sinks or softcap");
    }
    const Problem one = backward_problem(1, 1, 1, 1, 1, 16);
    EXPECT_EQ(refusal_of(name, one, known_machines()[0]), "it runs on a GPU");
  }
}

TEST(AttentionBackwardWalkTest, PlannedBytesCountTheScores) {
  const Problem p = backward_problem(1, 1, 1, 1024, 1024, 64);
  const auto planned = [&](std::string_view name) {
    return planned_bytes(p, decision_of(name, p), h200());
  };
  EXPECT_EQ(planned("backward_wmma"), least_bytes(p) + 3 * 8.0 * 1024);
  EXPECT_EQ(planned("backward_naive") - planned("backward_wmma"), 34.0 * 1024 * 1024);
}

}  // namespace
}  // namespace onepass
