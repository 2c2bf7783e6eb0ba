// Plans for a CPU, and what may be wrong with one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "rows/cpu/layout.hpp"

namespace onepass::test {

inline constexpr std::array kFloating = {DType::f32, DType::f16, DType::bf16, DType::f64};

inline constexpr CpuTuning kTuning = {.grain = 16384,
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

inline CpuPlan cpu_plan(const Problem& p, const Machine& m, Reasons* reasons = nullptr) {
  return CpuPlan(choose(p, m, reasons));
}

inline std::string to_string(const CpuPlan& plan) { return to_string(plan.decision.plan()); }

inline Machine machine_of(int threads, std::int64_t l3 = 0) {
  return {"made up", "AVX2", threads, 32 << 10, 1 << 20, l3, kTuning};
}

inline std::vector<Machine> machines() {
  std::vector<Machine> all(known_machines().begin(), known_machines().end());
  for (const int threads : {1, 2, 3, 64}) all.push_back(machine_of(threads));
  return all;
}

// The six flags of a problem as the bits of a number.
inline constexpr unsigned kFlagSets = 64;

inline Problem with_flags(Problem p, unsigned bits) {
  p.unit_stride = (bits & 1) != 0;
  p.unit_rows = (bits & 2) != 0;
  p.plain = (bits & 4) != 0;
  p.whole_rows = (bits & 8) != 0;
  p.wants_lse = (bits & 16) != 0;
  p.in_place = (bits & 32) != 0;
  return p;
}

inline std::string describe(const Problem& p, const Machine& m) {
  std::ostringstream text;
  text << name(p.op) << " " << p.rows << "x" << p.cols << " " << name(p.in) << ":" << name(p.out)
       << std::boolalpha << " unit_stride=" << p.unit_stride << " unit_rows=" << p.unit_rows
       << " plain=" << p.plain << " whole_rows=" << p.whole_rows << " wants_lse=" << p.wants_lse
       << " in_place=" << p.in_place << " on " << m.name << " with " << m.threads << " threads";
  return text.str();
}

// At most one row per thread: its weights, rounded up to a grain, with room for a beginning that is
// not aligned, and one maximum a tile.
inline double most_scratch(const Problem& p) {
  const std::int64_t weights = round_up(p.cols, kGrain) + kGrain;
  const std::int64_t maxima = round_up(p.cols / (kTile - kGrain) + 2, kGrain);
  return static_cast<double>(weights + maxima) * static_cast<double>(size_of(compute_type(p.in)));
}

// What is wrong with a plan; empty when nothing is.
inline std::string fault(const CpuPlan& plan, const Problem& p, const Machine& m) {
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

inline std::string chosen_fault(const CpuPlan& plan, const Problem& p, const Machine& m) {
  const Variant* v = find_variant(p.op, plan.variant);
  if (v != nullptr && v->role != Role::ship) return "a variant that does not ship";
  if (plan.variant == "cpu_split" && plan.split < 2) return "cpu_split without pieces";
  return fault(plan, p, m);
}

// The reasons tell the story of this plan: each a sentence, one naming the variant.
inline std::string reasons_fault(const Reasons& reasons, const CpuPlan& plan) {
  if (reasons.empty()) return "no reasons";
  for (const std::string& reason : reasons) {
    if (reason.empty()) return "an empty reason";
  }
  const bool named = std::any_of(reasons.begin(), reasons.end(), [&](const std::string& reason) {
    return reason.find(plan.variant) != std::string::npos;
  });
  return named ? "" : "no reason mentions " + std::string(plan.variant);
}

}  // namespace onepass::test
