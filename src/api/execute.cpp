#include "api/execute.hpp"

#include <array>
#include <optional>
#include <string>

#include "dispatch/machines.hpp"
#include "runtime/gpu.hpp"

namespace onepass {
namespace {

// Each thread caches its last decision per op, because programs repeat the same shapes.
const Decision& decision_for(const Problem& problem, const Machine& machine) {
  struct Made {
    Problem problem;
    Machine machine;
    Decision decision;
  };
  thread_local std::array<std::optional<Made>, kAllOps.size()> last;
  std::optional<Made>& mine = last[static_cast<std::size_t>(problem.op)];
  if (!mine || mine->problem != problem || mine->machine != machine) {
    mine = Made{problem, machine, choose(problem, machine)};
  }
  return mine->decision;
}

}  // namespace

Status machine_of(const Context& context, Machine& machine) {
  if (context.device() == Device::cuda) return this_gpu(machine);
  if (context.threads() < 0) {
    return {Code::invalid_argument,
            "context: threads " + std::to_string(context.threads()) + " is negative"};
  }
  machine = this_host(context.threads());
  return {};
}

Queue queue_of(const Context& context, const Machine& machine) {
  return {.stream = context.stream(), .early = machine.gpu.sm >= 90};
}

Status workspace_of(const Context& context, std::size_t bytes, std::byte*& out) {
  if (context.workspace() == nullptr) return gpu::workspace(context.stream(), bytes, out);
  if (context.workspace_bytes() < bytes) {
    return {Code::invalid_argument, "context: a workspace of " +
                                        std::to_string(context.workspace_bytes()) +
                                        " bytes, the plan needs " + std::to_string(bytes)};
  }
  out = static_cast<std::byte*>(context.workspace());
  return {};
}

Status check_reachable(const Context& context, Pointers pointers) {
  if (context.trusts()) return {};
  for (const auto& [name, data] : pointers) {
    if (data != nullptr) ONEPASS_TRY(gpu::check_reachable(name, data));
  }
  return {};
}

Status decide(const Context& context, const Problem& problem, const Machine& machine,
              const Wanted& wanted, Decision& decision) {
  Reasons reasons;
  Reasons* const why = context.explanation() != nullptr ? &reasons : nullptr;
  if (!wanted.variant.empty()) {
    ONEPASS_TRY(plan_variant(wanted.variant, problem, machine, decision, why));
  } else if (decision =
                 why == nullptr ? decision_for(problem, machine) : choose(problem, machine, why);
             !decision) {
    choose(problem, machine, &reasons);
    return {Code::unsupported, reasons.back()};
  }
  if (wanted.plan != nullptr) *wanted.plan = decision.plan();
  if (why != nullptr) {
    *context.explanation() = {.plan = decision.plan(),
                              .reasons = std::move(reasons),
                              .least_bytes = least_bytes(problem),
                              .planned_bytes = planned_bytes(problem, decision, machine)};
  }
  return {};
}

}  // namespace onepass
