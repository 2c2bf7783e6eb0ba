// What choose() decides for problems and machines by hand, and the machines that it knows.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <set>

#include "tests/dispatch/cpu_plans.hpp"

namespace onepass {
namespace {

using namespace test;

TEST(ChooseTest, AVariantThatDoesNotExist) {
  Decision decision;
  const Status status =
      plan_variant("cpu_best", {.op = Op::softmax, .rows = 4, .cols = 4}, machine_of(2), decision);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message().find("variant: softmax has no 'cpu_best'; it has "), 0U);
  for (const Variant& v : variants(Op::softmax)) {
    EXPECT_NE(status.message().find(" " + std::string(v.name)), std::string::npos) << v.name;
  }
  EXPECT_FALSE(decision);
}

// One row keeps one thread busy, unless it is cut: what the peers do not do.
TEST(ChooseTest, OneLongRowIsSplitOverAllThreads) {
  for (const Machine& m : machines()) {
    for (const Op op : kRowOps) {
      for (const DType dtype : kFloating) {
        for (unsigned flags = 0; flags < kFlagSets; ++flags) {
          Problem p =
              with_flags({.op = op, .rows = 1, .cols = 1 << 24, .in = dtype, .out = dtype}, flags);
          p.unit_rows = false;  // one row has no neighbours
          const CpuPlan plan = cpu_plan(p, m);
          if (m.threads == 1) {
            EXPECT_EQ(plan.split, 1) << describe(p, m);
          } else {
            EXPECT_EQ(plan.variant, "cpu_split") << describe(p, m);
            EXPECT_EQ(plan.split, m.threads) << describe(p, m);
            EXPECT_EQ(plan.threads, m.threads) << describe(p, m);
          }
        }
      }
    }
  }
}

TEST(ChooseTest, SmallWorkStaysOnOneThread) {
  for (const Op op : kRowOps) {
    const CpuPlan plan = cpu_plan({.op = op, .rows = 10, .cols = 100}, machine_of(64));
    EXPECT_EQ(plan.threads, 1) << name(op);
    EXPECT_EQ(plan.split, 1) << name(op);
  }
}

TEST(ChooseTest, EnoughRowsAreNeverCut) {
  for (const Machine& m : machines()) {
    for (const std::int64_t cols : {16384, 50257, 1 << 20}) {
      const CpuPlan plan = cpu_plan({.op = Op::softmax, .rows = 64 * m.threads, .cols = cols}, m);
      EXPECT_EQ(plan.split, 1) << m.name << " " << cols;
      EXPECT_EQ(plan.threads, m.threads) << m.name << " " << cols;
    }
  }
}

// On a machine of this file's own, so that no measurement moves the table.
TEST(ChooseTest, ByHand) {
  struct Line {
    Problem problem;
    int threads;
    std::string_view plan;
  };
  const Problem f32{.op = Op::softmax, .rows = 4096, .cols = 4096};
  const auto with = [](Problem p, auto change) {
    change(p);
    return p;
  };
  const std::array lines = {
      Line{f32, 2, "cpu_row threads=2 split=1 scratch=16896 resident streaming"},
      Line{with(f32, [](Problem& p) { p.in_place = true; }), 2,
           "cpu_row threads=2 split=1 scratch=16896 resident"},
      Line{with(f32, [](Problem& p) { p.op = Op::logsumexp; }), 2,
           "cpu_row threads=2 split=1 scratch=0 reread"},
      Line{with(f32, [](Problem& p) { p.op = Op::softmax_backward; }), 1,
           "cpu_row threads=1 split=1 scratch=0 reread streaming"},
      Line{with(f32, [](Problem& p) { p.cols = 256; }), 2,
           "cpu_short threads=2 split=1 scratch=0 reread"},
      Line{with(f32,
                [](Problem& p) {
                  p.cols = 257;
                  p.rows = 2;
                }),
           2, "cpu_row threads=1 split=1 scratch=1792 resident"},
      Line{with(f32,
                [](Problem& p) {
                  p.rows = 1;
                  p.cols = 50257;
                }),
           2, "cpu_split threads=2 split=2 scratch=101120 resident"},
      Line{with(f32,
                [](Problem& p) {
                  p.rows = 1;
                  p.cols = 1 << 20;
                }),
           2, "cpu_split threads=2 split=2 scratch=0 reread streaming"},
      Line{with(f32,
                [](Problem& p) {
                  p.rows = 3;
                  p.cols = 50257;
                }),
           64, "cpu_split threads=9 split=9 scratch=23040 resident"},
      Line{with(f32,
                [](Problem& p) {
                  p.unit_stride = false;
                  p.unit_rows = true;
                }),
           2, "cpu_lanes threads=2 split=1 scratch=0 reread"},
      Line{with(f32, [](Problem& p) { p.unit_stride = false; }), 2,
           "cpu_row threads=2 split=1 scratch=16896 resident"},
  };
  for (const Line& line : lines) {
    const Machine m = machine_of(line.threads);
    Reasons reasons;
    const CpuPlan plan = cpu_plan(line.problem, m, &reasons);
    EXPECT_EQ(to_string(plan), line.plan) << describe(line.problem, m);
    EXPECT_EQ(reasons_fault(reasons, plan), "") << describe(line.problem, m);
  }
}

TEST(PlannedBytesTest, CountsASecondReadOnlyWhereARowLeavesTheCache) {
  const Machine m = machine_of(2);  // 1 MiB of L2
  const auto moved = [&](Op op, std::int64_t cols, const CpuLaunch& launch) {
    const Problem p{.op = op, .rows = 10, .cols = cols};
    return planned_bytes(p, {.launch = launch}, m) / (10.0 * 4 * static_cast<double>(cols));
  };
  const CpuLaunch again{};
  const CpuLaunch resident{.resident = true};
  const CpuLaunch halves{.threads = 2, .split = 2};
  constexpr std::int64_t fits = (1 << 20) / 4;
  EXPECT_EQ(moved(Op::softmax, fits, again), 2);
  EXPECT_EQ(moved(Op::softmax, fits + 1, again), 3);
  EXPECT_EQ(moved(Op::softmax, fits + 1, resident), 2);
  EXPECT_EQ(moved(Op::softmax, 2 * fits, halves), 2);
  EXPECT_EQ(moved(Op::softmax, 2 * fits + 1, halves), 3);
  EXPECT_EQ(moved(Op::logsumexp, 2 * fits, again), 1);
  EXPECT_EQ(moved(Op::softmax_backward, fits / 2, again), 3);
  EXPECT_EQ(moved(Op::softmax_backward, fits, again), 5);
}

TEST(PlanTest, PrintsEveryField) {
  EXPECT_EQ(to_string(Plan{.variant = "cpu_split",
                           .threads = 8,
                           .split = 4,
                           .scratch_bytes = 4096,
                           .details = "resident"}),
            "cpu_split threads=8 split=4 scratch=4096 resident");
  EXPECT_EQ(to_string(Plan{.variant = "gpu_block", .threads = 256, .blocks = 12}),
            "gpu_block blocks=12 threads=256 split=1 scratch=0");
}

TEST(MachineTest, TheTableIsUsable) {
  std::set<std::string_view> names;
  for (const Machine& m : known_machines()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_EQ(find_machine(m.name), &m);
    EXPECT_GE(m.threads, 1) << m.name;
    EXPECT_GT(m.l1, 0) << m.name;
    EXPECT_GT(m.l2, m.l1) << m.name;
    EXPECT_GT(m.tuning.grain, 0) << m.name;
    EXPECT_GT(m.tuning.split_cols, 0) << m.name;
    EXPECT_GT(m.tuning.resident_share, 0) << m.name;
    EXPECT_LE(m.tuning.resident_share, 1) << m.name;
    EXPECT_EQ(m.tuning.grain, tuning_for(m.isa).grain) << m.name;
  }
  EXPECT_FALSE(names.empty());
  EXPECT_EQ(find_machine("abacus"), nullptr);
}

TEST(MachineTest, EveryInstructionSetHasATuning) {
  for (const std::string_view isa :
       {"AVX3", "AVX3_DL", "AVX2", "SCALAR", "NEON", "something new"}) {
    EXPECT_GT(tuning_for(isa).grain, 0) << isa;
  }
}

// The ops that choose from a row: one long row is cut, with room for each piece's candidates; short
// rows of gates never are; and nothing is promised on a GPU.
TEST(ChooseTest, OpsThatSelect) {
  Machine m = *find_machine("sapphire-rapids-2");
  for (const Op op : {Op::topk, Op::sample}) {
    const CpuPlan plan = cpu_plan({.op = op, .rows = 1, .cols = 1 << 20, .k = 50}, m);
    EXPECT_EQ(plan.variant, "cpu_split");
    EXPECT_EQ(plan.split, m.threads);
    EXPECT_GE(plan.scratch_bytes, 50U * 16);
    EXPECT_EQ(cpu_plan({.op = op, .rows = 64, .cols = 32000, .k = 50}, m).variant, "cpu_row");
  }
  EXPECT_EQ(cpu_plan({.op = Op::gate, .rows = 1, .cols = 1 << 20, .k = 8}, m).variant, "cpu_row");
}

// Rows of whole packs have kernels of their own, but not where clusters of 16 bits come in rounds,
// nor where a row's bits shall not depend on how the others lie.
TEST(ChooseTest, RowsOfWholePacks) {
  const Machine h200 = *find_machine("h200");
  const auto whole = [&](Problem p) {
    const Launch launch = choose(p, h200).launch;
    const auto* group = std::get_if<gpu_rows::GroupLaunch>(&launch);
    return group != nullptr ? group->whole : std::get<gpu_rows::BlockLaunch>(launch).whole;
  };
  const auto rows = [](std::int64_t count, std::int64_t cols, DType dtype) {
    return Problem{.rows = count,
                   .cols = cols,
                   .in = dtype,
                   .out = dtype,
                   .aligned_rows = true,
                   .packed_rows = true};
  };
  EXPECT_TRUE(whole(rows(4096, 256, DType::f32)));
  EXPECT_TRUE(whole(rows(4096, 2048, DType::f16)));
  EXPECT_TRUE(whole(rows(1, 128256, DType::f16)));
  EXPECT_TRUE(whole(rows(64, 128256, DType::f32)));
  EXPECT_FALSE(whole(rows(64, 128256, DType::f16)));  // 1024 blocks of 256 threads
  Problem wider = rows(4096, 2048, DType::f16);
  wider.out = DType::f32;
  EXPECT_FALSE(whole(wider));
  Problem p = rows(4096, 256, DType::f32);
  p.packed_rows = false;
  EXPECT_FALSE(whole(p));
  p.packed_rows = p.batch_invariant = true;
  EXPECT_FALSE(whole(p));
  p.batch_invariant = false;
  p.plain = false;
  EXPECT_FALSE(whole(p));
}

}  // namespace
}  // namespace onepass
