// Whether what was chosen from a row may have been: the answer of an op that chooses need not be
// one alone, where elements are as near to each other as their rounding.
#pragma once

#include <string>

#include "cli/ops/call.hpp"

namespace onepass::cli {

// The first thing that is wrong with a row's answer, in words; empty when nothing is.
std::string check_chosen(const Call& call, std::int64_t row);

}  // namespace onepass::cli
