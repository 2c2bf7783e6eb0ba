// The CPU variants of cross-entropy. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "rows/args.hpp"
#include "rows/cpu/plan.hpp"

namespace onepass::ops::loss {

Status cpu_row(const RowArgs& args,
               const CpuLaunch& launch);  // cpu_row, and cpu_split with split > 1

// Where classes have weights, or probabilities as targets.
Status cpu_weighted(const RowArgs& args, const CpuLaunch& launch);

}  // namespace onepass::ops::loss
