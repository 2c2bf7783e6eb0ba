// From a checked call to its kernel: what the public functions of all ops share.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/try.hpp"
#include "dispatch/choose.hpp"
#include "onepass/context.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "runtime/queue.hpp"

namespace onepass {

// The machine that a context's calls run on.
Status machine_of(const Context& context, Machine& machine);

// Of a context on a GPU.
Queue queue_of(const Context& context, const Machine& machine);

// At least `bytes` of a GPU's memory: the caller's own, or what the stream keeps.
Status workspace_of(const Context& context, std::size_t bytes, std::byte*& out);

// The pointers among a call's arguments, by the arguments' names; null: absent.
using Pointers = std::initializer_list<std::pair<std::string_view, const void*>>;

// That the GPU reaches them: a kernel could only answer with a fault that no later call survives. A
// context that trusts is not asked.
Status check_reachable(const Context& context, Pointers pointers);

// What a call wants of the dispatcher: a variant by name, or with "" the best; and a copy of
// the plan, or none.
struct Wanted {
  std::string_view variant;
  Plan* plan = nullptr;
};

Status decide(const Context& context, const Problem& problem, const Machine& machine,
              const Wanted& wanted, Decision& decision);

// Decides and runs. A context that asks for an explanation gets it, and nothing runs; nor
// does it where there is nothing to do. `place` puts what an op keeps in the workspace beside
// its kernel's own.
template <class Args, class Place>
Status execute(const Context& context, const Problem& problem, const Machine& machine,
               const Wanted& wanted, bool nothing_to_do, Pointers pointers, Args& args,
               Place place) {
  Decision decision;
  ONEPASS_TRY(decide(context, problem, machine, wanted, decision));
  if (context.explanation() != nullptr || nothing_to_do) return {};
  if (context.device() == Device::cuda) {
    args.queue = queue_of(context, machine);
    ONEPASS_TRY(check_reachable(context, pointers));
    ONEPASS_TRY(workspace_of(context, decision.scratch_bytes, args.workspace));
    place(args, decision);
  }
  return decision.runs->run(args, decision.launch);
}

template <class Args>
Status execute(const Context& context, const Problem& problem, const Machine& machine,
               const Wanted& wanted, bool nothing_to_do, Pointers pointers, Args& args) {
  return execute(context, problem, machine, wanted, nothing_to_do, pointers, args,
                 [](Args&, const Decision&) {});
}

}  // namespace onepass
