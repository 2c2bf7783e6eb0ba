// The GPU variants of cross-entropy. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/loss/gpu/plan.hpp"
#include "rows/args.hpp"
#include "rows/gpu/plan.hpp"

namespace onepass::ops::loss {

Status gpu_group(const RowArgs& args, const gpu_rows::GroupLaunch& launch);
Status gpu_block(const RowArgs& args, const gpu_rows::BlockLaunch& launch);  // and gpu_cluster
Status gpu_grid(const RowArgs& args, const gpu_rows::GridLaunch& launch);
Status gpu_weighted(const RowArgs& args, const gpu_rows::WeightedLaunch& launch);

}  // namespace onepass::ops::loss
