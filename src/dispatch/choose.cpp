#include "dispatch/choose.hpp"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "core/integers.hpp"
#include "ops/attention/cpu/layout.hpp"
#include "ops/loss/gpu/plan.hpp"
#include "ops/select/gpu/policy.hpp"
#include "rows/cpu/plan.hpp"
#include "rows/gpu/best.hpp"
#include "rows/gpu/policy.hpp"

namespace onepass {
namespace {

Decision decided(const Variant& variant, const Launch& launch, const Problem& p, Reasons* reasons) {
  Decision decision{&variant, launch, scratch_bytes(launch)};
  if (variant.device == Device::cuda) {
    if (p.reduced) {  // behind it lie the losses of all rows
      const auto own = static_cast<std::int64_t>(decision.scratch_bytes);
      decision.scratch_bytes =
          static_cast<std::size_t>(round_up(own, sizeof(double))) + gpu_rows::loss_scratch_bytes(p);
    }
    if (reasons != nullptr) {
      const Plan plan = decision.plan();
      say(reasons, plan.blocks, " blocks of ", plan.threads, " threads, ", plan.split,
          " per row: ", plan.details);
    }
  }
  return decision;
}

bool ships(const Variant& v, const Machine& m) {
  return v.role == Role::ship && v.device == m.device();
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

// Each text once, with the variants it is said of.
using Said = std::vector<std::pair<std::string, std::vector<std::string>>>;
void add(Said& said, const std::string& text, std::string_view variant) {
  auto at = std::ranges::find(said, text, &Said::value_type::first);
  if (at == said.end()) at = said.insert(at, {text, {}});
  at->second.emplace_back(variant);
}

// The variant that ships, can run the problem and does not yield. Null: nothing can run it.
const Variant* best_variant(const Problem& p, const Machine& m) {
  for (const Variant& v : variants(p.op)) {
    if (!ships(v, m) || !v.refuses(p, m).empty()) continue;
    if (v.yields == nullptr || !v.yields(p, m, nullptr)) return &v;
  }
  return nullptr;
}

// Why it is the best, and why the others that can run the problem are not.
void say_why(const Variant& best, const Problem& p, const Machine& m, Reasons& reasons) {
  std::string reason;
  Said others;
  for (const Variant& v : variants(p.op)) {
    if (!ships(v, m) || !v.refuses(p, m).empty()) continue;
    Reasons why;
    if (v.yields != nullptr) v.yields(p, m, &why);
    const std::string text = why.empty() ? std::string(v.idea) : joined(why, "; ");
    if (&v == &best) {
      reason = text;
    } else {
      add(others, text, v.name);
    }
  }
  say(&reasons, best.name, ": ", reason);
  for (const auto& [text, names] : others) {
    say(&reasons, "not ", joined(names, ", "), text == reason ? "" : ": " + text);
  }
}

std::string_view where(const Machine& m) { return m.device() == Device::cuda ? "a GPU" : "a CPU"; }

// Why nothing that ships can run a problem.
std::string refusals(const Problem& p, const Machine& m) {
  Said all;
  for (const Variant& v : variants(p.op)) {
    if (ships(v, m)) add(all, v.refuses(p, m), v.name);
  }
  std::vector<std::string> texts;
  for (const auto& [text, names] : all) {
    texts.push_back(all.size() == 1 ? text : joined(names, ", ") + ": " + text);
  }
  const std::string nothing = "nothing runs this: " + std::string(name(p.op));
  if (texts.empty()) return nothing + " has no variant for " + std::string(where(m));
  return nothing + ": " + joined(texts, "; ");
}

// Every tile reads its keys and values again; from memory where those of a head do not
// stay in a cache.
double attention_bytes(const Problem& p, const Launch& launch, const Machine& m) {
  const AttentionFacts& a = p.attention;
  const double extra = extra_bytes(launch);
  if (extra > 0 || p.op == Op::attention_backward) return least_bytes(p) + extra;
  const double kv_head =
      static_cast<double>(a.keys) * (a.dim + a.value_dim()) * static_cast<double>(size_of(p.in));
  if (kv_head <= static_cast<double>(std::max(m.l2, m.l3))) return least_bytes(p);
  const auto* cpu = std::get_if<CpuAttentionLaunch>(&launch);
  const std::int64_t tile_rows = cpu != nullptr ? cpu->tile_rows : kFlashRows;
  const auto tiles = static_cast<double>(ceil_div(a.queries * a.group(), tile_rows));
  const double kv = key_tokens(a) * static_cast<double>(a.kv_heads) * (a.dim + a.value_dim()) *
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
  const Variant* best = best_variant(problem, machine);
  if (best == nullptr) {
    if (reasons != nullptr) reasons->push_back(refusals(problem, machine));
    return {};
  }
  if (reasons != nullptr) say_why(*best, problem, machine, *reasons);
  return decided(*best, best->plan(problem, machine, reasons), problem, reasons);
}

Status plan_variant(std::string_view wanted, const Problem& problem, const Machine& machine,
                    Decision& decision, Reasons* reasons) {
  // A launch has a name, too: gpu_block:4, gpu_stream:1:64.
  const std::string_view family = wanted.substr(0, wanted.find(':'));
  const auto config = selects(problem.op) ? std::nullopt : gpu_rows::config_named(wanted);
  const bool by_family = selects(problem.op) || config;
  const Variant* found = find_variant(problem.op, by_family ? family : wanted);
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
    decision = decided(*found, launch, problem, reasons);
  } else if (family != wanted) {
    const auto launch = gpu_select::launch_named(wanted, problem, machine);
    if (!launch) return no_such_variant(problem.op, wanted);
    decision = decided(*found, widened(*launch), problem, reasons);
  } else {
    decision = decided(*found, found->plan(problem, machine, reasons), problem, reasons);
  }
  return {};
}

std::vector<std::string> launch_names(const Problem& problem, const Machine& machine) {
  if (problem.op == Op::gate || attends(problem.op)) return {};
  if (selects(problem.op)) return gpu_select::launch_names(problem, machine);
  std::vector<std::string> names;
  for (const gpu_rows::Config& config : gpu_rows::candidates(problem, machine)) {
    names.push_back(gpu_rows::name_of(config));
  }
  return names;
}

double planned_bytes(const Problem& p, const Decision& decision, const Machine& m) {
  if (attends(p.op)) return attention_bytes(p, decision.launch, m);
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
