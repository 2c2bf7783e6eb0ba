// The GPU variants of softmax and its relatives that ship. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "rows/args.hpp"
#include "rows/gpu/plan.hpp"

namespace onepass::ops::softmax {

Status gpu_group(const RowArgs& args, const gpu_rows::GroupLaunch& launch);
Status gpu_block(const RowArgs& args, const gpu_rows::BlockLaunch& launch);  // and gpu_cluster
Status gpu_grid(const RowArgs& args, const gpu_rows::GridLaunch& launch);
Status gpu_backward_group(const RowArgs& args, const gpu_rows::GroupLaunch& launch);
Status gpu_backward_block(const RowArgs& args, const gpu_rows::BlockLaunch& launch);
Status gpu_backward_grid(const RowArgs& args, const gpu_rows::GridLaunch& launch);

}  // namespace onepass::ops::softmax
