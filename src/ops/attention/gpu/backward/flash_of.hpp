// The launches of gpu_flash's backward, compiled in two files per dim.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::ops::attention {

template <int Dim>
Status gpu_backward_flash_of(const AttentionBackwardArgs& args,
                             const gpu_attention::BackwardFlashLaunch& launch);

// With every option, by kernels of either dtype.
template <int Dim>
Status gpu_backward_flash_any_of(const AttentionBackwardArgs& args,
                                 const gpu_attention::BackwardFlashLaunch& launch);

}  // namespace onepass::ops::attention
