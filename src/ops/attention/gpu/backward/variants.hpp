// The GPU variants of attention's backward, and what they share. The list itself:
// ../../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::ops::attention {

Status gpu_backward_simt(const AttentionBackwardArgs& args,
                         const gpu_attention::BackwardSimtLaunch& launch);
Status gpu_backward_flash(const AttentionBackwardArgs& args,
                          const gpu_attention::BackwardFlashLaunch& launch);

// Fills the workspace: a BackwardRow of each query of each head.
Status prepare_backward(const AttentionBackwardArgs& args, std::string_view variant);

// Gradients of sinks and of the additive mask, and zeros for tokens that take no part.
Status finish_backward(const AttentionBackwardArgs& args, std::string_view variant);

}  // namespace onepass::ops::attention
