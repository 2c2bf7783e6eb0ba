// The variants of softmax and its relatives, by name. The list itself: variants.def.
#pragma once

#include "ops/row/args.hpp"
#include "ops/variant.hpp"

namespace onepass::ops::softmax {

Status cpu_serial(const RowArgs& args, const Plan& plan);
Status cpu_short(const RowArgs& args, const Plan& plan);
Status cpu_row(const RowArgs& args, const Plan& plan);  // cpu_split is the same with split > 1
Status cpu_lanes(const RowArgs& args, const Plan& plan);
Status cpu_backward(const RowArgs& args, const Plan& plan);

// The walk on the GPU, in reading order: 00_naive.cu to 11_split_k_single.cu.
Status naive(const RowArgs& args, const Plan& plan);
Status block_serial(const RowArgs& args, const Plan& plan);
Status shared(const RowArgs& args, const Plan& plan);
Status vec4(const RowArgs& args, const Plan& plan);
Status warp_shuffle(const RowArgs& args, const Plan& plan);
Status online(const RowArgs& args, const Plan& plan);
Status register_packed(const RowArgs& args, const Plan& plan);
Status register_shared_medium(const RowArgs& args, const Plan& plan);
Status register_shared_extreme(const RowArgs& args, const Plan& plan);
Status two_pass_vector(const RowArgs& args, const Plan& plan);
Status split_k(const RowArgs& args, const Plan& plan);
Status split_k_single(const RowArgs& args, const Plan& plan);

// What ships on the GPU.
Status gpu_group(const RowArgs& args, const Plan& plan);
Status gpu_block(const RowArgs& args, const Plan& plan);  // gpu_cluster is the same with split > 1
Status gpu_grid(const RowArgs& args, const Plan& plan);
Status gpu_backward_group(const RowArgs& args, const Plan& plan);
Status gpu_backward_block(const RowArgs& args, const Plan& plan);
Status gpu_backward_grid(const RowArgs& args, const Plan& plan);

}  // namespace onepass::ops::softmax
