// What the library finds out of a call of a case, which it must not refuse.
#pragma once

#include <gtest/gtest.h>

#include "cli/ops/call.hpp"

namespace onepass::cli {

inline Problem problem_of(const Case& c) {
  Problem problem;
  const Status status = describe(c, problem);
  EXPECT_TRUE(status.ok()) << to_string(c) << ": " << status.message();
  return problem;
}

}  // namespace onepass::cli
