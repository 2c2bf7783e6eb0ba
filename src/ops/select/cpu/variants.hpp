// The CPU variants of the ops that select from rows. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "rows/args.hpp"
#include "rows/cpu/plan.hpp"

namespace onepass::ops::select {

Status cpu_unfused(const RowArgs& args, const CpuLaunch& launch);
Status cpu_row(const RowArgs& args,
               const CpuLaunch& launch);  // cpu_row, and cpu_split with split > 1
Status cpu_gate_row(const RowArgs& args, const CpuLaunch& launch);

}  // namespace onepass::ops::select
