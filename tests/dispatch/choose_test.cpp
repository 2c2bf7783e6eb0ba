// choose() is pure, so what it must never do is checked over everything it may be asked.
// Not under sanitizers: plans are pure functions.
#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <sstream>

#include "dispatch/variant.hpp"
#include "rows/cpu/layout.hpp"

namespace onepass {
namespace {

constexpr std::array kFloating = {DType::f32, DType::f16, DType::bf16, DType::f64};

constexpr CpuTuning kTuning = {.grain = 16384,
                               .split_cols = 16384,
                               .resident_share = 0.5,
                               .streaming_bytes = 4 << 20,
                               .short_cols = 256};

// A decision for a CPU.
struct CpuPlan : CpuLaunch {
  std::string_view variant;
  Decision decision;

  explicit CpuPlan(const Decision& made)
      : CpuLaunch(std::get<CpuLaunch>(made.launch)), variant(made.variant()), decision(made) {}
  bool operator==(const CpuPlan& other) const {
    return variant == other.variant && CpuLaunch::operator==(other);
  }
};

CpuPlan cpu_plan(const Problem& p, const Machine& m, Reasons* reasons = nullptr) {
  return CpuPlan(choose(p, m, reasons));
}

std::string to_string(const CpuPlan& plan) { return to_string(plan.decision.plan()); }

Machine machine_of(int threads, std::int64_t l3 = 0) {
  return {"made up", "AVX2", threads, 32 << 10, 1 << 20, l3, kTuning};
}

std::vector<Machine> machines() {
  std::vector<Machine> all(known_machines().begin(), known_machines().end());
  for (const int threads : {1, 2, 3, 64}) all.push_back(machine_of(threads));
  return all;
}

// The six flags of a problem as the bits of a number.
constexpr unsigned kFlagSets = 64;

Problem with_flags(Problem p, unsigned bits) {
  p.unit_stride = (bits & 1) != 0;
  p.unit_rows = (bits & 2) != 0;
  p.plain = (bits & 4) != 0;
  p.whole_rows = (bits & 8) != 0;
  p.wants_lse = (bits & 16) != 0;
  p.in_place = (bits & 32) != 0;
  return p;
}

std::string describe(const Problem& p, const Machine& m) {
  std::ostringstream text;
  text << name(p.op) << " " << p.rows << "x" << p.cols << " " << name(p.in) << ":" << name(p.out)
       << std::boolalpha << " unit_stride=" << p.unit_stride << " unit_rows=" << p.unit_rows
       << " plain=" << p.plain << " whole_rows=" << p.whole_rows << " wants_lse=" << p.wants_lse
       << " in_place=" << p.in_place << " on " << m.name << " with " << m.threads << " threads";
  return text.str();
}

// At most one row a thread: its weights, rounded up to a grain, with room for a beginning that is
// not aligned, and one maximum a tile.
double most_scratch(const Problem& p) {
  const std::int64_t weights = round_up(p.cols, kGrain) + kGrain;
  const std::int64_t maxima = round_up(p.cols / (kTile - kGrain) + 2, kGrain);
  return static_cast<double>(weights + maxima) * static_cast<double>(size_of(compute_type(p.in)));
}

// What is wrong with a plan; empty when nothing is.
std::string fault(const CpuPlan& plan, const Problem& p, const Machine& m) {
  const Variant* v = find_variant(p.op, plan.variant);
  if (v == nullptr) return "no such variant";
  if (!v->refuses(p, m).empty()) return "the variant refuses: " + v->refuses(p, m);
  if (plan.threads < 1 || plan.threads > m.threads) return "threads";
  if (plan.split < 1 || plan.split > plan.threads) return "split";
  if (plan.split > 1 && plan.variant != "cpu_split") return "split without cpu_split";
  if (!plan.resident && plan.scratch_bytes != 0) return "scratch for nothing";
  if (plan.resident && plan.scratch_bytes == 0) return "resident without scratch";
  if (static_cast<double>(plan.scratch_bytes) > most_scratch(p)) return "more scratch than a row";
  if (plan.streaming && p.in_place) return "streaming in place";
  if (plan.streaming && !p.unit_stride) return "streaming with strides";
  if (plan.streaming && traffic(p.op).writes == 0) return "streaming without an output";
  const double moved = planned_bytes(p, plan.decision, m);
  const double least = least_bytes(p);
  if (moved < least * (1 - 1e-12)) return "moves less than the least";
  if (plan.resident && moved > least * (1 + 1e-12)) return "resident, and reads twice";
  return {};
}

std::string chosen_fault(const CpuPlan& plan, const Problem& p, const Machine& m) {
  const Variant* v = find_variant(p.op, plan.variant);
  if (v != nullptr && v->role != Role::ship) return "a variant that does not ship";
  if (plan.variant == "cpu_split" && plan.split < 2) return "cpu_split without pieces";
  return fault(plan, p, m);
}

// The reasons tell the story of this plan: each a sentence, one naming the variant.
std::string reasons_fault(const Reasons& reasons, const CpuPlan& plan) {
  if (reasons.empty()) return "no reasons";
  for (const std::string& reason : reasons) {
    if (reason.empty()) return "an empty reason";
  }
  const bool named = std::any_of(reasons.begin(), reasons.end(), [&](const std::string& reason) {
    return reason.find(plan.variant) != std::string::npos;
  });
  return named ? "" : "no reason mentions " + std::string(plan.variant);
}

// The first fault in the plans of a grid of sizes, with some pairs of dtypes and all flags.
std::string grid_fault(std::span<const std::int64_t> all_rows,
                       std::span<const std::int64_t> all_cols) {
  constexpr std::array<std::pair<DType, DType>, 6> dtypes = {{{DType::f32, DType::f32},
                                                              {DType::f16, DType::f16},
                                                              {DType::bf16, DType::f32},
                                                              {DType::f64, DType::f64},
                                                              {DType::f32, DType::f64},
                                                              {DType::f64, DType::bf16}}};
  Problem p;
  for (const Machine& m : machines()) {
    for (const Op op : kRowOps) {
      for (const std::int64_t rows : all_rows) {
        for (const std::int64_t cols : all_cols) {
          for (const auto& [in, out] : dtypes) {
            for (unsigned flags = 0; flags < kFlagSets; ++flags) {
              p = with_flags({.op = op, .rows = rows, .cols = cols, .in = in, .out = out}, flags);
              const CpuPlan plan = cpu_plan(p, m);
              const std::string fault = chosen_fault(plan, p, m);
              if (!fault.empty()) return fault + ": " + describe(p, m) + ": " + to_string(plan);
            }
          }
        }
      }
    }
  }
  return {};
}

TEST(ChooseTest, SoundOverAGridOfProblemsAndMachinesSlow) {
  constexpr std::array<std::int64_t, 8> rows = {0, 1, 2, 3, 7, 64, 4096, 1000000};
  constexpr std::array<std::int64_t, 16> cols = {
      0, 1, 2, 31, 256, 257, 512, 513, 2047, 2048, 2049, 16384, 50257, 131073, 1 << 20, 1 << 24};
  EXPECT_EQ(grid_fault(rows, cols), "");
}

TEST(ChooseTest, SoundOnEveryMachineForTheEdgesOfTheKernels) {
  constexpr std::array<std::int64_t, 1> rows = {4096};
  constexpr std::array<std::int64_t, 2> cols = {513, 1 << 20};
  EXPECT_EQ(grid_fault(rows, cols), "");
}

rc::Gen<Problem> any_problem() {
  const auto size = rc::gen::oneOf(
      rc::gen::inRange<std::int64_t>(0, 600), rc::gen::inRange<std::int64_t>(0, 200000),
      rc::gen::element<std::int64_t>(1, 2047, 2048, 2049, 16383, 16384, 32768, 50257, 1 << 24));
  return rc::gen::exec([size] {
    Problem p{.op = *rc::gen::elementOf(kRowOps), .rows = *size, .cols = *size};
    p.in = *rc::gen::elementOf(kFloating);
    p.out = *rc::gen::elementOf(kFloating);
    return with_flags(p, *rc::gen::inRange(0U, kFlagSets));
  });
}

rc::Gen<Machine> any_machine() {
  return rc::gen::exec([] {
    Machine m = *rc::gen::elementOf(machines());
    m.threads = *rc::gen::inRange(1, 200);
    m.l2 = *rc::gen::element<std::int64_t>(0, 64 << 10, 1 << 20, 8 << 20);
    m.tuning.streaming_bytes = *rc::gen::element<std::int64_t>(0, 1, 4 << 20);
    m.tuning.short_cols = *rc::gen::element<std::int64_t>(0, 32, 512, 100000);
    m.tuning.grain = *rc::gen::element<std::int64_t>(1, 1000, 16384);
    m.tuning.split_cols = *rc::gen::element<std::int64_t>(1, 4096, 100000);
    return m;
  });
}

void holds(const std::string& fault, const Problem& p, const Machine& m, const CpuPlan& plan) {
  if (fault.empty()) return;
  RC_FAIL(fault + ": " + describe(p, m) + ": " + to_string(plan));
}

RC_GTEST_PROP(ChooseTest, ABatchInvariantPlanIsTheSameForAnyNumberOfRows, ()) {
  Problem p = *any_problem();
  const Machine m = *any_machine();
  p.batch_invariant = true;
  p.rows = *rc::gen::inRange<std::int64_t>(1, 3000);
  Problem other = p;
  other.rows = *rc::gen::inRange<std::int64_t>(1, 3000);
  const CpuPlan a = cpu_plan(p, m), b = cpu_plan(other, m);
  RC_ASSERT(a.variant == b.variant);
  RC_ASSERT(a.split == b.split);
  RC_ASSERT(a.resident == b.resident);
  RC_ASSERT(a.streaming == b.streaming);
}

RC_GTEST_PROP(ChooseTest, SoundDeterministicAndExplained, ()) {
  const Problem p = *any_problem();
  const Machine m = *any_machine();
  const CpuPlan plan = cpu_plan(p, m);
  holds(chosen_fault(plan, p, m), p, m, plan);
  Reasons reasons;
  const CpuPlan again = cpu_plan(p, m, &reasons);
  holds(again == plan ? "" : "another plan for the same problem", p, m, again);
  holds(reasons_fault(reasons, plan), p, m, plan);
}

RC_GTEST_PROP(ChooseTest, ForcedVariantsPlanSoundlyOrSayWhyNot, ()) {
  const Problem p = *any_problem();
  const Machine m = *any_machine();
  for (const Variant& v : variants(p.op)) {
    Decision decision;
    Reasons reasons;
    const Status status = plan_variant(v.name, p, m, decision, &reasons);
    if (!v.refuses(p, m).empty()) {
      RC_ASSERT(status.code() == Code::unsupported);
      RC_ASSERT(status.message() ==
                "variant: " + std::string(v.name) + " cannot run this: " + v.refuses(p, m));
      RC_ASSERT(!decision);
      continue;
    }
    RC_ASSERT(status.ok());
    const CpuPlan plan(decision);
    RC_ASSERT(plan.variant == v.name);
    holds(fault(plan, p, m), p, m, plan);
    holds(reasons_fault(reasons, plan), p, m, plan);
  }
  const CpuPlan chosen = cpu_plan(p, m);
  Decision decision;
  holds(plan_variant(chosen.variant, p, m, decision).message(), p, m, chosen);
  const CpuPlan forced(decision);
  holds(forced == chosen ? "" : "the chosen variant, forced, plans otherwise", p, m, forced);
}

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

// Sizes that no memory holds, but that `explain` may be asked about: nothing wraps around.
TEST(ChooseTest, HugeProblemsDoNotWrapAround) {
  constexpr std::int64_t one = 1;
  for (const Machine& m : machines()) {
    for (const Op op : kRowOps) {
      for (const DType dtype : kFloating) {
        for (const auto& [rows, cols] : {std::pair{one << 31, one << 31},
                                         {one, one << 60},
                                         {one, one << 61},
                                         {one, one << 62},
                                         {one, (one << 62) - 1},
                                         {one << 62, one},
                                         {one << 38, one << 24},
                                         {one << 24, one << 38},
                                         // Kept weights of 2^64 bytes and a little, all or half.
                                         {one, ((one << 62) / 1986 + 1) * 1985},
                                         {one, ((one << 61) / 1986 + 1) * 1985},
                                         {one, ((one << 61) / 1986 + 1) * 1985 * 2},
                                         {(one << 20) + 1, (one << 42) - 1}}) {
          const Problem p{.op = op, .rows = rows, .cols = cols, .in = dtype, .out = dtype};
          Reasons reasons;
          const CpuPlan plan = cpu_plan(p, m, &reasons);
          ASSERT_EQ(chosen_fault(plan, p, m), "") << describe(p, m) << ": " << to_string(plan);
          EXPECT_EQ(plan.threads, m.threads) << describe(p, m);
          const bool row_too_long = cols >= one << 30;
          EXPECT_FALSE(row_too_long && plan.resident) << describe(p, m) << ": " << to_string(plan);
          for (const std::string& reason : reasons) {
            const std::size_t minus = reason.find('-');
            EXPECT_FALSE(minus + 1 < reason.size() && std::isdigit(reason[minus + 1]) != 0)
                << describe(p, m) << ": " << reason;
          }
        }
      }
    }
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
TEST(ChooseTest, OpsThatChoose) {
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
