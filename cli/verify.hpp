// Verification: run a case, compare with the oracle, look at what must not have been touched.
#pragma once

#include <string>
#include <vector>

#include "cli/case.hpp"

namespace onepass::cli {

struct Verdict {
  enum class Kind { passed, failed, refused } kind = Kind::passed;
  std::string message;  // why it failed or was refused
  double worst = 0;     // the largest error, in tolerances
  std::string variant;  // the one that ran
};

// One case, one variant (the case's own, or the dispatcher's choice).
Verdict verify(const Case& c);

// The case once for each fill, variant and instruction set that it leaves open, and that can run.
std::vector<Case> expand(const Case& c, bool all_fills);

}  // namespace onepass::cli
