// Runs the threads of a launch, for the CPU variants of all row ops.
#pragma once

#include <cstddef>

#include "merge/team.hpp"
#include "onepass/status.hpp"
#include "rows/args.hpp"
#include "rows/cpu/plan.hpp"

namespace onepass {

// A thread's share of an op, compiled once per instruction set.
using Worker = void (*)(const RowArgs&, const CpuLaunch&, Team&, std::byte* memory);

Status run_workers(const RowArgs& args, const CpuLaunch& launch, Worker worker);

}  // namespace onepass
