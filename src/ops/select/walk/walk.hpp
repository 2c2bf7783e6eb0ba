// The walk on the GPU, in reading order: 00_unfused.cu to 03_online_single_pass.cu. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/select/walk/plan.hpp"
#include "rows/args.hpp"

namespace onepass::ops::topk {

Status unfused(const RowArgs& args, const WalkLaunch& launch);
Status three_pass_local(const RowArgs& args, const WalkLaunch& launch);
Status warp_merge(const RowArgs& args, const WalkLaunch& launch);
Status online_single_pass(const RowArgs& args, const WalkLaunch& launch);

}  // namespace onepass::ops::topk
