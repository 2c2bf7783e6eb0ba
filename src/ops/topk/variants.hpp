// The variants of the ops that choose from a row. The list itself: variants.def.
#pragma once

#include "ops/variant.hpp"

namespace onepass::ops::topk {

Status cpu_unfused(const RowArgs& args, const Plan& plan);
Status cpu_choose(const RowArgs& args, const Plan& plan);  // cpu_row, and cpu_split with split > 1
Status gpu_choose(const RowArgs& args, const Plan& plan);
Status gpu_sample(const RowArgs& args, const Plan& plan);
Status gpu_sort(const RowArgs& args, const Plan& plan);
Status gpu_gate(const RowArgs& args, const Plan& plan);
Status cpu_gate(const RowArgs& args, const Plan& plan);

}  // namespace onepass::ops::topk
