#include "dispatch/choose.hpp"

#include <algorithm>
#include <sstream>

#include "core/integers.hpp"
#include "dispatch/tuning.hpp"
#include "ops/attention/cpu/layout.hpp"
#include "ops/loss/gpu/plan.hpp"
#include "ops/select/gpu/policy.hpp"
#include "ops/softmax/cpu/limits.hpp"
#include "rows/cpu/plan.hpp"
#include "rows/gpu/policy.hpp"

namespace onepass {
namespace {

Decision decided(const Variant& variant, const Launch& launch, const Problem& p) {
  Decision decision{&variant, launch, scratch_bytes(launch)};
  if (variant.device == Device::cuda && p.reduced) {  // behind it lie the losses of all rows
    const auto own = static_cast<std::int64_t>(decision.scratch_bytes);
    decision.scratch_bytes =
        static_cast<std::size_t>(round_up(own, sizeof(double))) + gpu_rows::loss_scratch_bytes(p);
  }
  return decision;
}

Decision decided(std::string_view variant, const Launch& launch, const Problem& p) {
  return decided(*find_variant(p.op, variant), launch, p);
}

// The one of those that ship and can run it that does not leave it to another.
Decision select_of_list(const Problem& p, const Machine& m, Reasons* reasons) {
  std::string refusal;  // of the first, which takes the most
  for (const Variant& v : variants(p.op)) {
    if (v.role != Role::ship || v.device != m.device()) continue;
    if (std::string no = v.refuses(p, m); !no.empty()) {
      if (refusal.empty()) refusal = std::string(v.name) + ": " + no;
      continue;
    }
    const std::string why = v.yields == nullptr ? "" : v.yields(p, m);
    if (!why.empty()) {
      say(reasons, "not ", v.name, ": ", why);
      continue;
    }
    say(reasons, v.name, ": ", v.idea);
    return decided(v, v.plan(p, m, reasons), p);
  }
  say(reasons, "nothing runs this: ", name(p.op), ": ", refusal);
  return {};
}

std::string_view best_on_cpu(const Problem& p, const Machine& m, Reasons* reasons) {
  const bool maps_rows = p.op == Op::softmax || p.op == Op::log_softmax;
  if (maps_rows && refuse_rows_apart(p, m).empty()) {
    say(reasons, "cpu_lanes: the axis is not the innermost, neighbours in memory are rows");
    return "cpu_lanes";
  }
  if (p.op != Op::gate && worth_splitting(p, m, reasons)) {
    say(reasons, "cpu_split: all threads share each row");
    return "cpu_split";
  }
  if (maps_rows && p.cols <= m.tuning.short_cols && refuse_long(p, m).empty()) {
    say(reasons, "cpu_short: ", p.cols, " columns, at most ", m.tuning.short_cols,
        ", and no options");
    return "cpu_short";
  }
  say(reasons, "cpu_row: the general case");
  return "cpu_row";
}

Decision choose_selection(const Problem& p, const Machine& m, Reasons* reasons) {
  const bool wide = p.in == DType::f64 && p.op != Op::sample;
  const std::string refusal = wide               ? gpu_select::refuse_wide(p, m)
                              : p.op == Op::gate ? gpu_select::refuse_gate(p, m)
                                                 : gpu_select::refuse_any_k(p, m);
  if (!refusal.empty()) {
    say(reasons, "nothing runs this: ", name(p.op), ": ", refusal);
    return {};
  }
  const gpu_select::Choice choice = wide ? gpu_select::Choice{"gpu_wide", gpu_select::wide(p, m)}
                                    : p.op == Op::gate
                                        ? gpu_select::Choice{"gpu_warp", gpu_select::warp(p, m)}
                                        : gpu_select::best(p, m);
  const Decision decision = decided(choice.variant, widened(choice.launch), p);
  const Plan plan = decision.plan();
  say(reasons, plan.variant, ": ", p.rows, " rows of ", p.cols, ", for ", m.gpu.processors,
      " processors");
  say(reasons, plan.split, " blocks a row: ", plan.blocks, " of ", plan.threads, " threads");
  return decision;
}

Decision choose_weighted(const Problem& p, const Machine& m, Reasons* reasons) {
  const gpu_rows::WeightedLaunch launch = gpu_rows::weighted(p, m);
  say(reasons, "gpu_weighted: ", p.rows, " rows of ", gpu_rows::weighted_packs(p),
      " packs of 16 bytes, whose classes have ",
      p.probability_bytes > 0 ? "probabilities" : "weights");
  say(reasons, launch.row_threads, " threads a row, ", launch.threads, " a block, ", launch.blocks,
      " blocks; ", launch.resident ? "a row is read once" : "what no block can hold is read twice");
  return decided("gpu_weighted", launch, p);
}

Decision choose_rows_on_gpu(const Problem& p, const Machine& m, Reasons* reasons) {
  // Without regard to the number of rows: as if there were many.
  Problem judged = p;
  if (p.batch_invariant) judged.rows = 1024;
  const auto tuned = m.tuned != nullptr ? m.tuned->find(judged, m) : std::nullopt;
  const gpu_rows::Config config = tuned ? *tuned : gpu_rows::derived_config(judged, m);
  const bool by_rows = config.kernel == gpu_rows::Kernel::grid;  // how it cuts a row
  Launch launch = widened(gpu_rows::launch_of(config, by_rows ? judged : p, m));
  if (by_rows) {
    auto& grid = std::get<gpu_rows::GridLaunch>(launch);
    grid.blocks = std::min(grid.blocks, std::max<std::int64_t>(p.rows, 1) * grid.split);
  }
  const Decision decision = decided(gpu_rows::variant_of(config), launch, p);
  const Plan plan = decision.plan();
  say(reasons, plan.variant, ": ", p.rows, " rows of ", gpu_rows::packs(p),
      " packs of 16 bytes, for ", m.gpu.processors, " processors");
  say(reasons, tuned ? "measured: the quickest at the nearest point of the tuning table"
                     : "derived from the machine's limits: no measured point is near");
  if (p.batch_invariant) say(reasons, "chosen by the columns alone: batch_invariant");
  say(reasons, plan.blocks, " blocks of ", plan.threads, " threads, ", plan.split,
      " blocks a row: ", plan.details);
  return decision;
}

Decision choose_on_gpu(const Problem& p, const Machine& m, Reasons* reasons) {
  if (const std::string refusal = gpu_rows::refuse_no_gpu(p, m); !refusal.empty()) {
    say(reasons, "nothing runs this: ", refusal);
    return {};
  }
  if (selects(p.op)) return choose_selection(p, m, reasons);
  if (p.weighted) return choose_weighted(p, m, reasons);
  return choose_rows_on_gpu(p, m, reasons);
}

// Every tile reads its keys and values again; from memory where those of a head do not
// stay in a cache.
double attention_bytes(const Problem& p, const Launch& launch, const Machine& m) {
  const AttentionFacts& a = p.attention;
  if (const double extra = extra_bytes(launch); extra > 0) return least_bytes(p) + extra;
  const double kv_head =
      2 * static_cast<double>(a.keys) * a.dim * static_cast<double>(size_of(p.in));
  if (kv_head <= static_cast<double>(std::max(m.l2, m.l3))) return least_bytes(p);
  const auto* cpu = std::get_if<CpuAttentionLaunch>(&launch);
  const std::int64_t tile_rows = cpu != nullptr ? cpu->tile_rows : kFlashRows;
  const auto tiles = static_cast<double>(ceil_div(a.queries * a.group(), tile_rows));
  const double kv = 2 * key_tokens(a) * static_cast<double>(a.kv_heads) * a.dim *
                    static_cast<double>(size_of(p.in));
  return least_bytes(p) + std::max(tiles - 1, 0.0) * kv;
}

}  // namespace

Plan Decision::plan() const {
  Plan plan = std::visit([](const auto& each) { return each.plan(); }, launch);
  plan.variant = variant();
  plan.scratch_bytes = scratch_bytes;
  return plan;
}

Decision choose(const Problem& problem, const Machine& machine, Reasons* reasons) {
  if (problem.op == Op::attention) return select_of_list(problem, machine, reasons);
  if (machine.device() == Device::cuda) return choose_on_gpu(problem, machine, reasons);
  const Variant& best = *find_variant(problem.op, best_on_cpu(problem, machine, reasons));
  return decided(best, best.plan(problem, machine, reasons), problem);
}

Status plan_variant(std::string_view wanted, const Problem& problem, const Machine& machine,
                    Decision& decision, Reasons* reasons) {
  // A launch has a name, too: gpu_block:4, gpu_stream:1:64.
  const std::string_view family = wanted.substr(0, wanted.find(':'));
  const auto config = selects(problem.op) ? std::nullopt : gpu_rows::config_named(wanted);
  const Variant* found = find_variant(problem.op, config ? gpu_rows::variant_of(*config)
                                                  : selects(problem.op) ? family
                                                                        : wanted);
  if (found == nullptr) return no_such_variant(problem.op, wanted);
  if (const std::string refusal = found->refuses(problem, machine); !refusal.empty()) {
    return {Code::unsupported, "variant: " + std::string(wanted) + " cannot run this: " + refusal};
  }
  say(reasons, wanted, ": asked for by name");
  if (config) {
    if (!gpu_rows::fits(*config, problem, machine)) {
      return {Code::unsupported, "variant: " + std::string(wanted) + " does not hold such rows"};
    }
    const Launch launch = widened(gpu_rows::launch_of(*config, problem, machine));
    decision = decided(*found, launch, problem);
  } else if (family != wanted) {
    const auto launch = gpu_select::launch_named(wanted, problem, machine);
    if (!launch) return no_such_variant(problem.op, wanted);
    decision = decided(*found, widened(*launch), problem);
  } else {
    decision = decided(*found, found->plan(problem, machine, reasons), problem);
  }
  return {};
}

std::vector<std::string> launch_names(const Problem& problem, const Machine& machine) {
  if (problem.op == Op::gate || problem.op == Op::attention) return {};
  if (selects(problem.op)) return gpu_select::launch_names(problem, machine);
  std::vector<std::string> names;
  for (const gpu_rows::Config& config : gpu_rows::candidates(problem, machine)) {
    names.push_back(gpu_rows::name_of(config));
  }
  return names;
}

double planned_bytes(const Problem& p, const Decision& decision, const Machine& m) {
  if (p.op == Op::attention) return attention_bytes(p, decision.launch, m);
  const Traffic t = traffic(p.op);
  const bool resident = onepass::resident(decision.launch);
  const double elements = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  const double input = static_cast<double>(size_of(p.in)) * t.reads + p.probability_bytes;
  if (m.device() == Device::cuda) {
    const double again = p.weighted ? input : static_cast<double>(size_of(p.in));
    return least_bytes(p) + (resident ? 0.0 : elements * again);
  }
  const double read = elements * input;
  // What the finish reads again comes from L2 when a row of the inputs fits there.
  const int split = std::get<CpuLaunch>(decision.launch).split;
  const double row_bytes = static_cast<double>(ceil_div(p.cols, split)) * input;
  const bool again = t.writes > 0 && !resident && row_bytes > static_cast<double>(m.l2);
  return read * (again ? 2 : 1) + elements * static_cast<double>(size_of(p.out)) * t.writes;
}

std::string to_string(const Plan& plan) {
  std::ostringstream text;
  text << plan.variant;
  if (plan.blocks > 0) text << " blocks=" << plan.blocks;
  text << " threads=" << plan.threads << " split=" << plan.split
       << " scratch=" << plan.scratch_bytes;
  if (!plan.details.empty()) text << ' ' << plan.details;
  return text.str();
}

}  // namespace onepass
