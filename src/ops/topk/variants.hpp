// The variants of the ops that choose from a row. The list itself: variants.def.
#pragma once

#include "ops/row/args.hpp"
#include "ops/variant.hpp"

namespace onepass::ops::topk {

Status cpu_unfused(const RowArgs& args, const Plan& plan);
Status cpu_choose(const RowArgs& args, const Plan& plan);  // cpu_row, and cpu_split with split > 1
Status cpu_gate(const RowArgs& args, const Plan& plan);

// The walk on the GPU, in reading order: 00_unfused.cu to 03_online_single_pass.cu.
Status unfused(const RowArgs& args, const Plan& plan);
Status three_pass_local(const RowArgs& args, const Plan& plan);
Status warp_merge(const RowArgs& args, const Plan& plan);
Status online_single_pass(const RowArgs& args, const Plan& plan);

// What ships on the GPU.
Status gpu_choose(const RowArgs& args, const Plan& plan);
Status gpu_guess(const RowArgs& args, const Plan& plan);
Status gpu_sample(const RowArgs& args, const Plan& plan);
Status gpu_sample_guess(const RowArgs& args, const Plan& plan);
Status gpu_sample_stream(const RowArgs& args, const Plan& plan);
Status gpu_warp(const RowArgs& args, const Plan& plan);
Status gpu_stream(const RowArgs& args, const Plan& plan);
Status gpu_sort(const RowArgs& args, const Plan& plan);
Status gpu_gate(const RowArgs& args, const Plan& plan);
Status gpu_wide(const RowArgs& args, const Plan& plan);

}  // namespace onepass::ops::topk
