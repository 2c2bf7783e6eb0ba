// The CPU variants of softmax and its relatives. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "rows/args.hpp"
#include "rows/cpu/plan.hpp"

namespace onepass::ops::softmax {

Status cpu_serial(const RowArgs& args, const CpuLaunch& launch);
Status cpu_short(const RowArgs& args, const CpuLaunch& launch);
Status cpu_row(const RowArgs& args,
               const CpuLaunch& launch);  // cpu_split is the same with split > 1
Status cpu_lanes(const RowArgs& args, const CpuLaunch& launch);
Status cpu_backward_row(const RowArgs& args, const CpuLaunch& launch);

}  // namespace onepass::ops::softmax
