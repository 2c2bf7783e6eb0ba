// The GPU variants of the ops that select from rows that ship. The list itself: ../variants.def.
#pragma once

#include "onepass/status.hpp"
#include "ops/select/gpu/plan.hpp"
#include "ops/select/gpu/stream_plan.hpp"
#include "rows/args.hpp"

namespace onepass::ops::select {

Status gpu_block(const RowArgs& args,
                 const gpu_select::SelectLaunch& launch);  // gpu_cluster and gpu_grid, too
Status gpu_guess(const RowArgs& args, const gpu_select::SelectLaunch& launch);
Status gpu_sample_block(const RowArgs& args, const gpu_select::SelectLaunch& launch);
Status gpu_sample_guess(const RowArgs& args, const gpu_select::SelectLaunch& launch);
Status gpu_sample_stream(const RowArgs& args, const gpu_select::StreamLaunch& launch);
Status gpu_warp(const RowArgs& args, const gpu_select::LanesLaunch& launch);
Status gpu_stream(const RowArgs& args, const gpu_select::StreamLaunch& launch);
Status gpu_sort(const RowArgs& args, const gpu_select::SortLaunch& launch);
Status gpu_gate_warp(const RowArgs& args, const gpu_select::LanesLaunch& launch);
Status gpu_wide(const RowArgs& args, const gpu_select::SortLaunch& launch);

}  // namespace onepass::ops::select
