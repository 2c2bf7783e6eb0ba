// The walk on the GPU, in reading order: 00_naive.cu to 03_flash_wmma.cu. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/walk/plan.hpp"

namespace onepass::ops::attention {

Status naive(const AttentionArgs& args, const WalkLaunch& launch);
Status fused_softmax(const AttentionArgs& args, const WalkLaunch& launch);
Status fused_tuned(const AttentionArgs& args, const WalkLaunch& launch);
Status flash_wmma(const AttentionArgs& args, const WalkLaunch& launch);

}  // namespace onepass::ops::attention
