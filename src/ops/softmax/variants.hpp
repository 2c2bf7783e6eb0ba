// The variants of softmax and its relatives, by name. The list itself: variants.def.
#pragma once

#include "ops/variant.hpp"

namespace onepass::ops::softmax {

Status cpu_serial(const RowArgs& args, const Plan& plan);
Status cpu_short(const RowArgs& args, const Plan& plan);
Status cpu_row(const RowArgs& args, const Plan& plan);  // cpu_split is the same with split > 1
Status cpu_lanes(const RowArgs& args, const Plan& plan);
Status cpu_backward(const RowArgs& args, const Plan& plan);

}  // namespace onepass::ops::softmax
