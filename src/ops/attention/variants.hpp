// The variants of attention. The list itself: variants.def.
#pragma once

#include "ops/variant.hpp"

namespace onepass::ops::attention {

Status cpu_naive(const AttentionArgs& args, const Plan& plan);
Status cpu_flash(const AttentionArgs& args, const Plan& plan);

}  // namespace onepass::ops::attention
