// Bytes as a call that is in order: what the problem lines of the workloads say, and
// nothing about memory.
#pragma once

#include "cli/problem/case.hpp"
#include "fuzz/bytes.hpp"

namespace onepass::fuzz {

cli::Case decode_case(Bytes& bytes);

}  // namespace onepass::fuzz
