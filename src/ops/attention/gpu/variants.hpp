// The GPU variants of attention that ship. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"
#include "ops/attention/gpu/plan.hpp"

namespace onepass::ops::attention {

Status gpu_simt(const AttentionArgs& args, const attention_launch::SimtLaunch& launch);
Status flash_mma(const AttentionArgs& args, const attention_launch::FlashLaunch& launch);
Status gpu_decode(const AttentionArgs& args, const attention_launch::FlashLaunch& launch);
Status gpu_hopper(const AttentionArgs& args, const attention_launch::HopperLaunch& launch);

}  // namespace onepass::ops::attention
