#include "api/execute.hpp"

#include <array>
#include <optional>
#include <string>

#include "runtime/gpu.hpp"
#include "dispatch/machines.hpp"

namespace onepass {
namespace {

// The best plan. A thread remembers its last of each op: the same shapes come again and again.
const Plan& plan_for(const Problem& problem, const Machine& machine) {
  struct Chosen {
    Problem problem;
    Machine machine;
    Plan plan;
  };
  thread_local std::array<std::optional<Chosen>, kAllOps.size()> last;
  std::optional<Chosen>& mine = last[static_cast<std::size_t>(problem.op)];
  if (!mine || mine->problem != problem || mine->machine != machine) {
    mine = Chosen{problem, machine, choose(problem, machine)};
  }
  return mine->plan;
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

Status check_reachable(const Context& context,
                       std::initializer_list<std::pair<std::string_view, const void*>> arguments) {
  if (context.trusts()) return {};
  for (const auto& [name, data] : arguments) {
    if (data == nullptr) continue;
    if (Status status = gpu::check_reachable(name, data); !status.ok()) return status;
  }
  return {};
}

Status plan_call(const Context& context, const Problem& problem, const Machine& machine,
                 std::string_view variant, Plan* kept, Plan& plan) {
  Reasons reasons;
  Reasons* const why = context.explanation() != nullptr ? &reasons : nullptr;
  if (!variant.empty()) {
    if (Status status = plan_variant(variant, problem, machine, plan, why); !status.ok()) {
      return status;
    }
  } else if (plan = why == nullptr ? plan_for(problem, machine) : choose(problem, machine, why);
             plan.variant.empty()) {
    choose(problem, machine, &reasons);
    return {Code::unsupported, reasons.back()};
  }
  if (kept != nullptr) *kept = plan;
  if (why != nullptr) {
    *context.explanation() = {.plan = plan,
                              .reasons = std::move(reasons),
                              .least_bytes = least_bytes(problem),
                              .planned_bytes = planned_bytes(problem, plan, machine)};
  }
  return {};
}

}  // namespace onepass
