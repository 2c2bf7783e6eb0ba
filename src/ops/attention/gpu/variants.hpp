// The variant of attention for any GPU. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/plan.hpp"

namespace onepass::ops::attention {

Status gpu_simt(const AttentionArgs& args, const gpu_attention::SimtLaunch& launch);

}  // namespace onepass::ops::attention
