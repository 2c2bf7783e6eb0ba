// choose(Problem, Machine) -> Plan. Pure: no device, no clock, no memory but the machine's sizes.
#pragma once

#include <string>
#include <vector>

#include "core/problem.hpp"
#include "core/machine.hpp"
#include "core/reasons.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"

namespace onepass {

Plan choose(const Problem& problem, const Machine& machine, Reasons* reasons = nullptr);

// The plan of one variant, chosen or not; unsupported when it cannot run the problem.
Status plan_variant(std::string_view variant, const Problem& problem, const Machine& machine,
                    Plan& plan, Reasons* reasons = nullptr);

// Every launch of a GPU's that could be the quickest for a problem, by the name that plan_variant knows.
std::vector<std::string> launch_names(const Problem& problem, const Machine& machine);

// The bytes a plan moves between memory and caches, first reads and re-reads alike.
double planned_bytes(const Problem& problem, const Plan& plan, const Machine& machine);

}  // namespace onepass
