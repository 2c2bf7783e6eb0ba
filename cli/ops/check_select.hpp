// Checks answers of top-k, sample and gate: several are right where elements differ by less than
// rounding moves them.
#pragma once

#include <string>

#include "cli/ops/call.hpp"

namespace onepass::cli {

// The first thing that is wrong with a row's answer, in words; empty when nothing is.
std::string check_select(const Call& call, std::int64_t row);

}  // namespace onepass::cli
