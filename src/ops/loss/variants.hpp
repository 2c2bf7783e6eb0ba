// The variants of cross-entropy, by name. The list itself: variants.def.
#pragma once

#include "ops/row/args.hpp"
#include "ops/variant.hpp"

namespace onepass::ops::loss {

Status cpu_cross_entropy(const RowArgs& args, const Plan& plan);

// Where classes have weights, or probabilities as targets.
Status cpu_weighted(const RowArgs& args, const Plan& plan);

Status gpu_group(const RowArgs& args, const Plan& plan);
Status gpu_block(const RowArgs& args, const Plan& plan);  // gpu_cluster is the same with split > 1
Status gpu_grid(const RowArgs& args, const Plan& plan);
Status gpu_weighted(const RowArgs& args, const Plan& plan);

}  // namespace onepass::ops::loss
