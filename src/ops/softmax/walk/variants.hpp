// The walk on the GPU, in reading order: 00_naive.cu to 11_split_k_single.cu. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/softmax/walk/plan.hpp"
#include "rows/args.hpp"

namespace onepass::ops::softmax {

Status naive(const RowArgs& args, const WalkLaunch& launch);
Status block_serial(const RowArgs& args, const WalkLaunch& launch);
Status shared(const RowArgs& args, const WalkLaunch& launch);
Status vec4(const RowArgs& args, const WalkLaunch& launch);
Status warp_shuffle(const RowArgs& args, const WalkLaunch& launch);
Status online(const RowArgs& args, const WalkLaunch& launch);
Status register_packed(const RowArgs& args, const WalkLaunch& launch);
Status register_shared_medium(const RowArgs& args, const WalkLaunch& launch);
Status register_shared_extreme(const RowArgs& args, const WalkLaunch& launch);
Status two_pass_vector(const RowArgs& args, const WalkLaunch& launch);
Status split_k(const RowArgs& args, const WalkLaunch& launch);
Status split_k_single(const RowArgs& args, const WalkLaunch& launch);

}  // namespace onepass::ops::softmax
