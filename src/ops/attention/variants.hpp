// The variants of attention. The list itself: variants.def.
#pragma once

#include "ops/attention/args.hpp"
#include "ops/variant.hpp"

namespace onepass::ops::attention {

Status cpu_naive(const AttentionArgs& args, const Plan& plan);
Status cpu_flash(const AttentionArgs& args, const Plan& plan);

// On the GPU, in reading order: the walk, then what ships.
Status naive(const AttentionArgs& args, const Plan& plan);
Status fused_softmax(const AttentionArgs& args, const Plan& plan);
Status fused_tuned(const AttentionArgs& args, const Plan& plan);
Status flash_wmma(const AttentionArgs& args, const Plan& plan);
Status gpu_simt(const AttentionArgs& args, const Plan& plan);
Status flash_mma(const AttentionArgs& args, const Plan& plan);
Status gpu_decode(const AttentionArgs& args, const Plan& plan);
Status gpu_hopper(const AttentionArgs& args, const Plan& plan);

}  // namespace onepass::ops::attention
