// The launches of the walk are pure functions: every plan fits its GPU and covers its rows.
// Not under sanitizers: plans are pure functions.
#include "dispatch/machines.hpp"
#include "ops/softmax/walk/plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "rows/gpu/best.hpp"

namespace onepass {
namespace {

namespace geometry = ops::softmax::geometry;

constexpr std::array kTypes = {DType::f32, DType::f16, DType::bf16};

Problem problem_of(std::int64_t rows, std::int64_t cols, DType dtype) {
  return {.op = Op::softmax, .rows = rows, .cols = cols, .in = dtype, .out = dtype};
}

rc::Gen<Problem> any_problem() {
  return rc::gen::map(
      rc::gen::tuple(rc::gen::inRange<std::int64_t>(0, 40), rc::gen::inRange<std::int64_t>(0, 30),
                     rc::gen::inRange<std::int64_t>(-3, 4), rc::gen::elementOf(kTypes)),
      [](const auto& t) {
        const auto [rows_bits, cols_bits, beside, dtype] = t;
        const std::int64_t rows = std::int64_t{1} << rows_bits;
        const std::int64_t cols =
            std::max<std::int64_t>(0, (std::int64_t{1} << cols_bits) + beside);
        return problem_of(rows, cols, dtype);
      });
}

struct Sizes {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
};

Sizes sizes_of(const Launch& launch) {
  return std::visit(
      [](const auto& each) {
        Sizes sizes{.threads = 0};
        if constexpr (requires {
                        each.blocks;
                        each.threads;
                      }) {
          sizes = {each.blocks, each.threads};
        }
        if constexpr (requires { each.shared_bytes; }) sizes.shared_bytes = each.shared_bytes;
        return sizes;
      },
      launch);
}

// What a GPU could not do with a launch; empty when nothing.
std::string fault(const Decision& decision, const Machine& m) {
  const std::string_view variant = decision.variant();
  const auto block_shared = static_cast<std::size_t>(m.gpu.block_shared);
  const auto* grid = std::get_if<gpu_rows::GridLaunch>(&decision.launch);
  const std::size_t most_shared =
      variant == "register_shared_extreme" ? block_shared
      : grid != nullptr ? block_shared / (grid->general ? 1 : gpu_rows::kBlocksAtOnce) - 5120
      : variant.starts_with("gpu_") ? block_shared - 8192
                                    : std::size_t{48} << 10;
  const Sizes sizes = sizes_of(decision.launch);
  if (sizes.blocks < 1 || sizes.blocks > std::numeric_limits<std::int32_t>::max()) return "blocks";
  if (sizes.threads < 32 || sizes.threads > m.gpu.block_threads) return "threads";
  if (sizes.threads % 32 != 0) return "a block that is not whole warps";
  if (sizes.shared_bytes + 256 > most_shared) return "shared memory";
  const bool over_blocks = variant.starts_with("split_k") || grid != nullptr;
  if (decision.scratch_bytes > 0 && !over_blocks) return "a workspace for nothing";
  return {};
}

RC_GTEST_PROP(GeometryTest, EveryPlanFitsItsGpuOrIsRefused, ()) {
  const Problem p = *any_problem();
  const Machine m = *rc::gen::elementOf(known_gpus());
  for (const Variant& v : variants(Op::softmax)) {
    Decision decision;
    const Status status = plan_variant(v.name, p, m, decision);
    RC_ASSERT(status.ok() == v.refuses(p, m).empty());
    if (!status.ok()) continue;
    RC_ASSERT(v.device == Device::cuda);
    RC_ASSERT(decision.variant() == v.name);
    const std::string wrong = fault(decision, m);
    if (!wrong.empty()) RC_FAIL(wrong + " in " + to_string(decision.plan()));
    RC_ASSERT(planned_bytes(p, decision, m) >= least_bytes(p));
  }
}

// Every pack of every row has a thread, and one that is written is on chip or read again.
void check_holds(const gpu_rows::GroupLaunch& group, const Problem& p, const Machine&) {
  RC_ASSERT(std::int64_t{group.row_threads} * group.packs >= gpu_rows::packs(p));
  RC_ASSERT(group.threads % group.row_threads == 0);
  const int rows_per_group = gpu_rows::kGroupPacks / group.packs;
  RC_ASSERT(group.blocks * (group.threads / group.row_threads) * rows_per_group >= p.rows);
}

void check_holds(const gpu_rows::BlockLaunch& block, const Problem& p, const Machine& m) {
  const std::int64_t chunk = ceil_div(gpu_rows::packs(p), block.cluster);
  const std::int64_t held = std::int64_t{block.threads} * block.packs;
  RC_ASSERT(block.looped || held >= chunk);
  RC_ASSERT(traffic(p.op).writes == 0 || held + block.staged >= chunk);
  RC_ASSERT(static_cast<std::int64_t>(block.shared_bytes) ==
            block.staged * gpu_rows::held_bytes(p));
  RC_ASSERT(block.blocks == p.rows * block.cluster);
  RC_ASSERT(block.cluster <= gpu_rows::most_cluster(m));
}

void check_holds(const gpu_rows::GridLaunch& grid, const Problem& p, const Machine& m) {
  RC_ASSERT(grid.blocks % grid.split == 0);
  RC_ASSERT(grid.blocks <= m.gpu.processors * gpu_rows::grid_blocks(p));
  RC_ASSERT(grid.blocks <= p.rows * grid.split);  // every team has a row
  RC_ASSERT(grid.scratch_bytes >= static_cast<std::size_t>(grid.blocks) * 2 * 8);
  RC_ASSERT(std::int64_t{grid.chunk} * grid.split >= gpu_rows::packs(p));
  // What is not read again has a slot; where rows are long, beside what the registers take.
  const std::int64_t slots = std::int64_t{grid.slots} * (grid.general ? 1 : grid.threads);
  RC_ASSERT(static_cast<std::int64_t>(grid.shared_bytes) == slots * gpu_rows::held_bytes(p));
  const std::int64_t held = grid.looped ? std::int64_t{grid.threads} * grid.packs : 0;
  RC_ASSERT(!grid.resident || traffic(p.op).writes == 0 || held + slots >= grid.chunk);
  RC_ASSERT(grid.looped || slots >= grid.chunk);
}

void check_holds(const Decision& decision, const Problem& p, const Machine& m) {
  std::visit(
      [&](const auto& launch) {
        if constexpr (requires { check_holds(launch, p, m); }) {
          check_holds(launch, p, m);
        } else {
          RC_FAIL("no launch of rows");
        }
      },
      decision.launch);
}

rc::Gen<Problem> any_row_problem() {
  return rc::gen::exec([] {
    Problem p = *any_problem();
    p.op = *rc::gen::elementOf(kRowOps);
    p.in = *rc::gen::element(DType::f32, DType::f16, DType::bf16, DType::f64);
    p.out = *rc::gen::element(DType::f32, DType::f16, DType::bf16, DType::f64);
    p.aligned_rows = *rc::gen::arbitrary<bool>();
    p.plain = *rc::gen::arbitrary<bool>();
    p.unit_stride = *rc::gen::arbitrary<bool>();
    return p;
  });
}

// What the dispatcher chooses can run, and holds the row that its kernel keeps on chip.
RC_GTEST_PROP(GeometryTest, TheChoiceRunsAndHoldsItsRow, ()) {
  const Problem p = *any_row_problem();
  const Machine m = *rc::gen::elementOf(known_gpus());
  Reasons reasons;
  const Decision decision = choose(p, m, &reasons);
  RC_ASSERT(decision.runs != nullptr);
  RC_ASSERT(decision.runs->role == Role::ship);
  RC_ASSERT(decision.runs->refuses(p, m) == "");
  RC_ASSERT(reasons.size() >= 2U);
  RC_ASSERT(choose(p, m).plan() == decision.plan());
  const std::string wrong = fault(decision, m);
  if (!wrong.empty()) RC_FAIL(wrong + " in " + to_string(decision.plan()));
  check_holds(decision, p, m);
}

// Whatever a tuning may choose, too.
RC_GTEST_PROP(GeometryTest, EveryCandidateRunsAndHoldsItsRow, ()) {
  const Problem p = *any_row_problem();
  const Machine m = *rc::gen::elementOf(known_gpus());
  for (const gpu_rows::Config& config : gpu_rows::candidates(p, m)) {
    Decision decision;
    RC_ASSERT(gpu_rows::config_named(gpu_rows::name_of(config)) == config);
    RC_ASSERT(plan_variant(gpu_rows::name_of(config), p, m, decision).ok());
    const std::string wrong = fault(decision, m);
    if (!wrong.empty()) RC_FAIL(wrong + " in " + to_string(decision.plan()));
    check_holds(decision, p, m);
  }
}

// A variant by name launches as it is quickest: a row in registers where they hold it.
TEST(GeometryTest, ABlockByNameHoldsTheRowInRegistersWhereItCan) {
  const Machine& h200 = *find_machine("h200");
  const auto block = [&](std::int64_t cols) {
    return std::get<gpu_rows::BlockLaunch>(
        gpu_rows::block(problem_of(1024, cols, DType::f16), h200, nullptr));
  };
  EXPECT_EQ(block(16384).packs, 4);
  EXPECT_EQ(block(32768).packs, 8);
  EXPECT_FALSE(block(32768).looped);
  EXPECT_TRUE(block(40000).looped);
}

// Few rows have large ones, and long rows, of which shared memory could not hold what small ones
// leave.
TEST(GeometryTest, GeneralRowsThatFillTheGpuHaveSmallBlocks) {
  const Machine& h200 = *find_machine("h200");
  const auto threads = [&](std::int64_t rows, std::int64_t cols, bool batch_invariant = false) {
    Problem p = problem_of(rows, cols, DType::bf16);
    p.plain = false;
    p.batch_invariant = batch_invariant;
    return gpu_rows::block_launch(p, h200, 1, gpu_rows::kAnyPacks).threads;
  };
  EXPECT_EQ(threads(132, 8192), 512);
  EXPECT_EQ(threads(133, 8192), 128);
  EXPECT_EQ(threads(1, 8192, true), 128);
  EXPECT_EQ(threads(4096, 500), 32);
  EXPECT_EQ(threads(4096, 56000), 128);
  EXPECT_EQ(threads(4096, 60000), 512);
}

TEST(GeometryTest, OneLongRowHasManyProcessors) {
  const Machine& h200 = *find_machine("h200");
  const Plan one = choose(problem_of(1, 50257, DType::f16), h200).plan();
  EXPECT_EQ(one.variant, "gpu_cluster");
  EXPECT_GE(one.split, 8);
  EXPECT_EQ(choose(problem_of(4, 1 << 24, DType::f16), h200).variant(), "gpu_grid");
  EXPECT_EQ(choose(problem_of(131072, 32, DType::bf16), h200).variant(), "gpu_group");
  EXPECT_EQ(choose(problem_of(4096, 4096, DType::f32), h200).variant(), "gpu_block");
  // Without clusters: a block, or the grid.
  const Machine& a100 = *find_machine("a100");
  EXPECT_EQ(choose(problem_of(1, 50257, DType::f16), a100).variant(), "gpu_grid");
  EXPECT_EQ(choose(problem_of(4096, 8192, DType::f32), a100).variant(), "gpu_block");
}

// The kernels hold this much of a row on chip; a pack more would be lost.
TEST(GeometryTest, RowsOnChipAreHeldWhole) {
  for (const Machine& m : known_gpus()) {
    for (const DType dtype : kTypes) {
      const auto held = [&](std::int64_t cols) {
        const Problem p = problem_of(1, cols, dtype);
        const std::int64_t packs = most_packs(cols, dtype);
        if (cols <= geometry::kRegisterCols) {
          const ops::softmax::WalkLaunch plan = geometry::register_packed(p, m);
          EXPECT_GE(plan.threads * plan.packs, packs) << cols;
        }
        if (cols <= geometry::kMediumCols) {
          const ops::softmax::WalkLaunch plan = geometry::register_shared_medium(p, m);
          const auto shared = static_cast<std::int64_t>(plan.shared_bytes);
          EXPECT_LE(shared, geometry::kMediumShared) << cols;
          EXPECT_GE(plan.threads * ops::softmax::kHeldPacks + shared / 16, packs) << cols;
        }
        if (cols <= geometry::extreme_cols(dtype, m)) {
          const ops::softmax::WalkLaunch plan = geometry::register_shared_extreme(p, m);
          const auto shared = static_cast<std::int64_t>(plan.shared_bytes);
          EXPECT_LE(shared, m.gpu.block_shared - geometry::kMergeShared) << cols;
          EXPECT_GE(plan.threads * ops::softmax::kHeldPacks + shared / 16, packs) << cols;
        }
      };
      for (std::int64_t cols = 0; cols < 300; ++cols) held(cols);
      for (std::int64_t cols = 256; cols <= (1 << 18); cols = cols * 5 / 4) {
        for (const std::int64_t beside : {-1, 0, 1}) held(cols + beside);
      }
      held(geometry::kRegisterCols);
      held(geometry::kMediumCols);
      held(geometry::extreme_cols(dtype, m));
    }
  }
}

TEST(GeometryTest, PacksOfARowThatBeginsAnywhere) {
  EXPECT_EQ(most_packs(0, DType::f32), 0);
  EXPECT_EQ(most_packs(1, DType::f32), 1);
  EXPECT_EQ(most_packs(2, DType::f32), 2);  // on either side of a boundary
  EXPECT_EQ(most_packs(4, DType::f32), 2);
  EXPECT_EQ(most_packs(5, DType::f32), 2);
  EXPECT_EQ(most_packs(8, DType::f16), 2);
  EXPECT_EQ(most_packs(4096, DType::bf16), 513);
  for (const DType dtype : kTypes) {
    const std::int64_t lanes = pack_lanes(dtype);
    for (std::int64_t cols = 1; cols < 100; ++cols) {
      std::int64_t most = 0;
      for (std::int64_t skew = 0; skew < lanes; ++skew) {
        most = std::max(most, (skew + cols + lanes - 1) / lanes);
      }
      EXPECT_EQ(most_packs(cols, dtype), most) << cols;
    }
  }
}

TEST(GeometryTest, BlocksOfAnyNumberOfWarps) {
  const Machine& h200 = *find_machine("h200");
  const auto threads = [&](std::int64_t cols) {
    return geometry::one_state_a_thread(problem_of(1, cols, DType::f32), h200).threads;
  };
  EXPECT_EQ(threads(1), 32);
  EXPECT_EQ(threads(96), 96);
  EXPECT_EQ(threads(160), 160);
  EXPECT_EQ(threads(161), 192);
  EXPECT_EQ(threads(100000), 256);
}

TEST(GeometryTest, LimitsAreTheMachinesOwn) {
  const Machine& h200 = *find_machine("h200");
  const Machine& small = *find_machine("rtx-4090");
  EXPECT_GE(geometry::extreme_cols(DType::f16, h200), 114688);
  EXPECT_LT(geometry::extreme_cols(DType::f16, small), geometry::extreme_cols(DType::f16, h200));
  const std::int64_t most = geometry::extreme_cols(DType::f32, h200);
  EXPECT_EQ(geometry::refuse_extreme(problem_of(4, most, DType::f32), h200), "");
  EXPECT_EQ(geometry::refuse_extreme(problem_of(4, most + 1, DType::f32), h200),
            "its rows have at most " + std::to_string(most) + " elements here");
  EXPECT_EQ(geometry::refuse_registers(problem_of(4, 8193, DType::f32), h200),
            "its rows have at most 8192 elements here");
}

TEST(GeometryTest, WalkRefusesWhatItsKernelsCannotDo) {
  const Machine& h200 = *find_machine("h200");
  const Problem plain = problem_of(8, 100, DType::f16);
  EXPECT_EQ(geometry::refuse_walk(plain, h200), "");
  EXPECT_EQ(geometry::refuse_walk(plain, known_machines()[0]), "it runs on a GPU");
  const auto refused = [&](auto change) {
    Problem p = plain;
    change(p);
    return !geometry::refuse_walk(p, h200).empty();
  };
  EXPECT_TRUE(refused([](Problem& p) { p.out = DType::f32; }));
  EXPECT_TRUE(refused([](Problem& p) { p.in = p.out = DType::f64; }));
  EXPECT_TRUE(refused([](Problem& p) { p.unit_stride = false; }));
  EXPECT_TRUE(refused([](Problem& p) { p.even_rows = false; }));
  EXPECT_TRUE(refused([](Problem& p) { p.plain = false; }));
  EXPECT_TRUE(refused([](Problem& p) { p.whole_rows = false; }));
  EXPECT_TRUE(refused([](Problem& p) { p.wants_lse = true; }));
  EXPECT_FALSE(refused([](Problem& p) { p.in_place = true; }));
}

TEST(GeometryTest, FewLongRowsFillTheProcessors) {
  const Machine& h200 = *find_machine("h200");
  const ops::softmax::WalkLaunch one = geometry::split_k(problem_of(1, 1 << 25, DType::f16), h200);
  EXPECT_GE(one.blocks, h200.gpu.processors * 8);
  EXPECT_EQ(one.blocks, one.split);
  EXPECT_EQ(one.scratch_bytes, static_cast<std::size_t>(one.split) * sizeof(State<float>));
  const ops::softmax::WalkLaunch many =
      geometry::split_k(problem_of(100000, 1 << 20, DType::f16), h200);
  EXPECT_EQ(many.split, 1);
  const ops::softmax::WalkLaunch brief = geometry::split_k(problem_of(1, 100, DType::f16), h200);
  EXPECT_EQ(brief.split, 1);
  // All blocks of a cooperative launch are on the GPU at once.
  const ops::softmax::WalkLaunch single =
      geometry::split_k_single(problem_of(1000, 1 << 20, DType::f32), h200);
  EXPECT_LE(single.blocks, h200.gpu.processors * ops::softmax::kResidentBlocks);
  EXPECT_LE(ops::softmax::kResidentBlocks * ops::softmax::kSplitThreads,
            h200.gpu.processor_threads);
}

TEST(GeometryTest, MoreRowsThanBlocksThereMayBe) {
  const Machine& h200 = *find_machine("h200");
  const ops::softmax::WalkLaunch plan =
      geometry::packs(problem_of(std::int64_t{1} << 40, 8, DType::f32), h200);
  EXPECT_EQ(plan.blocks, std::numeric_limits<std::int32_t>::max());
}

}  // namespace
}  // namespace onepass
