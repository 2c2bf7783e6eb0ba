// choose(Problem, Machine) -> Decision. Pure: no device, no clock, no memory but the
// machine's sizes.
#pragma once

#include <string>
#include <vector>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"
#include "dispatch/variant.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"

namespace onepass {

// What runs a problem, and with what.
struct Decision {
  const Variant* runs = nullptr;  // null: nothing does
  Launch launch;
  std::size_t scratch_bytes = 0;  // per worker; on a GPU, of the workspace

  explicit operator bool() const { return runs != nullptr; }
  std::string_view variant() const { return runs == nullptr ? "" : runs->name; }
  Plan plan() const;  // as a user sees it
};

Decision choose(const Problem& problem, const Machine& machine, Reasons* reasons = nullptr);

// What one variant runs with, chosen or not; unsupported when it cannot run the problem.
Status plan_variant(std::string_view variant, const Problem& problem, const Machine& machine,
                    Decision& decision, Reasons* reasons = nullptr);

// Every launch of a GPU's that could be the quickest for a problem, by the name that
// plan_variant knows.
std::vector<std::string> launch_names(const Problem& problem, const Machine& machine);

// The bytes a decision moves between memory and caches, first reads and re-reads alike.
double planned_bytes(const Problem& problem, const Decision& decision, const Machine& machine);

}  // namespace onepass
