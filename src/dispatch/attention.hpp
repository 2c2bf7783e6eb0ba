// What choose() does with an attention: the variant, its threads, and whether keys are cut.
#pragma once

#include "dispatch/choose.hpp"

namespace onepass::attention_plan {

Plan choose(const Problem& problem, const Machine& machine, Reasons* reasons);

Status plan_variant(std::string_view variant, const Problem& problem, const Machine& machine,
                    Plan& plan, Reasons* reasons);

double planned_bytes(const Problem& problem, const Plan& plan, const Machine& machine);

}  // namespace onepass::attention_plan
