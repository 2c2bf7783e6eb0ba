// The CPU variants of attention. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/cpu/backward_plan.hpp"
#include "ops/attention/cpu/plan.hpp"

namespace onepass::ops::attention {

Status cpu_naive(const AttentionArgs& args, const CpuAttentionLaunch& launch);
Status cpu_flash(const AttentionArgs& args, const CpuAttentionLaunch& launch);
Status cpu_backward_naive(const AttentionBackwardArgs& args,
                          const CpuAttentionBackwardLaunch& launch);
Status cpu_backward_flash(const AttentionBackwardArgs& args,
                          const CpuAttentionBackwardLaunch& launch);

}  // namespace onepass::ops::attention
