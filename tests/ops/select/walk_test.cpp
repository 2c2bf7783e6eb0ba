// The launches of the walk through topk are pure functions: every plan fits its GPU, has its
// workspace, or is refused.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "ops/select/walk/plan.hpp"

namespace onepass {
namespace {

namespace geometry = ops::select::geometry;

constexpr std::array kWalk = {"unfused", "three_pass_local", "warp_merge", "online_single_pass"};

const Problem kProblem{.op = Op::topk, .rows = 64, .cols = 32000, .k = 50};

ops::select::WalkLaunch launch_of(std::string_view variant, const Problem& p,
                                  const Machine& m = *find_machine("h200")) {
  Decision decision;
  const Status status = plan_variant(variant, p, m, decision);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::get<ops::select::WalkLaunch>(decision.launch);
}

std::string refusal_of(std::string_view variant, const Problem& p,
                       const Machine& m = *find_machine("h200")) {
  return find_variant(Op::topk, variant)->refuses(p, m);
}

TEST(TopkWalkTest, ReadInOrderBeforeWhatShips) {
  std::vector<std::string_view> names;
  for (const Variant& v : variants(Op::topk)) {
    if (v.device == Device::cuda) names.push_back(v.name);
  }
  ASSERT_GT(names.size(), kWalk.size());
  EXPECT_TRUE(std::equal(kWalk.begin(), kWalk.end(), names.begin()));
  for (const char* name : kWalk) EXPECT_EQ(find_variant(Op::topk, name)->role, Role::teach) << name;
}

TEST(TopkWalkTest, ABlockARowOfAnyShape) {
  for (const Machine& m : known_gpus()) {
    for (const char* name : kWalk) {
      for (const std::int64_t rows : {0, 1, 64, 1 << 20}) {
        for (const std::int64_t cols : {1, 33, 128256}) {
          const Problem p{.op = Op::topk, .rows = rows, .cols = cols, .k = 1};
          const ops::select::WalkLaunch launch = launch_of(name, p, m);
          EXPECT_EQ(launch.blocks, std::max<std::int64_t>(rows, 1)) << name;
          EXPECT_EQ(launch.threads % kWarp, 0) << name;
          EXPECT_LE(launch.threads, m.gpu.block_threads) << name;
        }
      }
    }
  }
}

TEST(TopkWalkTest, OnlyTheFirstStepHasAWorkspaceAndOnlyTheLastReadsOnce) {
  EXPECT_EQ(launch_of("unfused", kProblem).scratch_bytes, std::size_t{64} * 32000 * 4);
  for (const char* name : kWalk) {
    const ops::select::WalkLaunch launch = launch_of(name, kProblem);
    EXPECT_EQ(launch.scratch_bytes > 0, std::string_view(name) == "unfused");
    EXPECT_EQ(launch.resident, std::string_view(name) == "online_single_pass");
  }
  const Problem largest{.op = Op::topk, .rows = kMostBlocks, .cols = kMostBlocks};
  EXPECT_EQ(geometry::probability_bytes(largest) / sizeof(float) / kMostBlocks,
            static_cast<std::size_t>(kMostBlocks));
}

TEST(TopkWalkTest, RefusesWhatItsKernelsCannotDo) {
  for (const char* name : kWalk) {
    const auto refuses = [&](auto change) {
      Problem p = kProblem;
      change(p);
      return refusal_of(name, p);
    };
    EXPECT_EQ(refuses([](Problem&) {}), "") << name;
    EXPECT_EQ(refuses([](Problem& p) { p.in = p.out = DType::bf16; }), "") << name;
    EXPECT_EQ(refuses([](Problem& p) { p.k = ops::select::kMostK; }), "") << name;
    EXPECT_EQ(refuses([](Problem& p) { p.k = ops::select::kMostK + 1; }), "it selects at most 256");
    for (const DType other : {DType::f16, DType::f64}) {
      EXPECT_EQ(refuses([&](Problem& p) { p.out = other; }),
                "it takes f32, f16 and bf16, and gives the same");
    }
    EXPECT_EQ(refuses([](Problem& p) { p.rows = kMostBlocks + 1; }),
              "it counts rows and columns with 31 bits");
    EXPECT_EQ(refuses([](Problem& p) { p.unit_stride = false; }), "its rows must be dense");
    EXPECT_EQ(refuses([](Problem& p) { p.even_rows = false; }), "its rows must lie at one stride");
    EXPECT_NE(refuses([](Problem& p) { p.plain = false; }), "") << name;
    EXPECT_NE(refuses([](Problem& p) { p.whole_rows = false; }), "") << name;
    EXPECT_NE(refuses([](Problem& p) { p.wants_lse = true; }), "") << name;
    EXPECT_EQ(refuses([](Problem& p) { p.textbook = false; }),
              "it gives probabilities, the largest first, and i64 indices");
    EXPECT_EQ(refusal_of(name, kProblem, known_machines()[0]), "it runs on a GPU");
  }
}

}  // namespace
}  // namespace onepass
