// Where a context's calls run.
#pragma once

#include "dispatch/machine.hpp"
#include "onepass/context.hpp"
#include "onepass/status.hpp"

namespace onepass {

Status machine_of(const Context& context, Machine& machine);

}  // namespace onepass
