// Verification: run a case, compare with the oracle, look at what must not have been touched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/ops/call.hpp"
#include "cli/ops/expect.hpp"
#include "cli/problem/case.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

struct Verdict {
  enum class Kind { passed, failed, refused } kind = Kind::passed;
  std::string message;   // why it failed or was refused
  Code code = Code::ok;  // of a case that was not run to its end: what stood in the way
  double worst = 0;      // the largest error, in tolerances
  std::string variant;   // the one that ran
};

// What is wrong with the answer that a call's outputs hold, in words; empty when nothing is. Tells
// the largest error, in tolerances.
std::string wrong_answer(const Call& call, const Expectation& expectation, double& worst);

// Verifies one case after another, each in one variant (the case's own, or the dispatcher's
// choice). The oracle, which takes longer than all variants together, runs once for neighbours that
// differ only in variant or instruction set.
class Verifier {
 public:
  Verdict verify(const Case& c);

 private:
  Verdict run_and_compare(const Case& c);

  Case expected_of_;
  std::optional<Expectation> expected_;
};

inline Verdict verify(const Case& c) { return Verifier().verify(c); }

// The case once for each fill, variant and instruction set that it leaves open, and that can run.
std::vector<Case> expand(const Case& c, bool all_fills);

}  // namespace onepass::cli
