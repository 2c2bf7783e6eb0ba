// Hopper's variant, and its kernels, which are long to compile: each dim has a file of
// its own, dim_*.cu.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"

namespace onepass::ops::attention {

Status gpu_hopper(const AttentionArgs& args, const gpu_attention::HopperLaunch& launch);

// For Dim: 64, 96, 128, 192, 256.
template <int Dim>
Status gpu_hopper_of(const AttentionArgs& args, const gpu_attention::HopperLaunch& launch);

}  // namespace onepass::ops::attention
