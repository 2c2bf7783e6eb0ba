// Where a context's calls run, and how.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "dispatch/choose.hpp"
#include "core/machine.hpp"
#include "onepass/context.hpp"
#include "onepass/status.hpp"
#include "runtime/queue.hpp"

namespace onepass {

Status machine_of(const Context& context, Machine& machine);

// Of a context on a GPU.
Queue queue_of(const Context& context, const Machine& machine);

// At least `bytes` of a GPU's memory: the caller's own, or what the stream keeps.
Status workspace_of(const Context& context, std::size_t bytes, std::byte*& out);

// That the GPU reaches what there is of a call's arguments, null being none: a kernel could only answer with a fault
// that no later call survives. A context that trusts is not asked.
Status check_reachable(const Context& context,
                       std::initializer_list<std::pair<std::string_view, const void*>> arguments);

// The plan of a call, by name or else the best; `kept`, if any, gets a copy. A context that asks learns why, and has had what
// it wanted.
Status plan_call(const Context& context, const Problem& problem, const Machine& machine,
                 std::string_view variant, Plan* kept, Plan& plan);

}  // namespace onepass
