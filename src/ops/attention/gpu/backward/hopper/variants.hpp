// Hopper's variant of the backward, and its kernels: each dim has a file of its own, dim_*.cu.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/gpu/backward/hopper/plan.hpp"

namespace onepass::ops::attention {

Status gpu_backward_hopper(const AttentionBackwardArgs& args,
                           const gpu_attention::BackwardHopperLaunch& launch);

// For Dim: 64, 128.
template <int Dim>
Status gpu_backward_hopper_of(const AttentionBackwardArgs& args,
                              const gpu_attention::BackwardHopperLaunch& launch);

}  // namespace onepass::ops::attention
