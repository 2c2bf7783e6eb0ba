// Runs a checked call: what the public functions of all ops share.
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

// The queue of a context on a GPU.
Queue queue_of(const Context& context, const Machine& machine);

// Finds at least `bytes` of GPU memory: the caller's workspace, or else the stream's.
Status workspace_of(const Context& context, std::size_t bytes, std::byte*& out);

// The pointers of a call, named as its arguments are; null: absent.
using Pointers = std::initializer_list<std::pair<std::string_view, const void*>>;

// Refuses pointers that the GPU cannot access, unless the context is trusting. In a kernel such a
// pointer would be a fault after which every CUDA call of the process fails.
Status check_reachable(const Context& context, Pointers pointers);

// What a call wants of the dispatcher: a variant by name, or "" for the best one, and a copy of the
// plan if `plan` is not null.
struct Wanted {
  std::string_view variant;
  Plan* plan = nullptr;
};

Status decide(const Context& context, const Problem& problem, const Machine& machine,
              const Wanted& wanted, Decision& decision);

// Decides and runs. Nothing runs if the context asks for an explanation or if there is nothing to
// do. On a GPU, place(args, decision) assigns what the op itself keeps in the workspace.
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
