// From a plan to running threads: what the CPU variants of all row ops share.
#pragma once

#include <cstddef>

#include "merge/team.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "rows/args.hpp"

namespace onepass {

// A thread's part of an op, compiled once an instruction set.
using Worker = void (*)(const RowArgs&, const Plan&, Team&, std::byte* memory);

Status run_workers(const RowArgs& args, const Plan& plan, Worker worker);

}  // namespace onepass
