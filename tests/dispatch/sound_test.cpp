// choose() is pure, so what it must never do is checked over everything it may be asked.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cctype>
#include <span>
#include <utility>

#include "tests/dispatch/cpu_plans.hpp"

namespace onepass {
namespace {

using namespace test;

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

}  // namespace
}  // namespace onepass
