// What a table of measurements comes to, in a sentence per op.
#pragma once

#include <span>
#include <string>

#include "cli/measure/results.hpp"

namespace onepass::cli {

// "softmax: 2.14x onednn in geometric mean over 6 problems, least 1.51x; all 6 results verified."
//
// Compares the variant that the dispatcher chose with the quickest peer of the same problem. A copy
// computes nothing and is no peer.
std::string summary(std::span<const Row> rows);

}  // namespace onepass::cli
