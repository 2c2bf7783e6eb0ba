// The machine this process runs on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/machine.hpp"

namespace onepass {

// Sizes and instruction set of this machine, with `threads` of its threads; 0: all. Without the
// thresholds that were measured on such a one: those are dispatch/machines.hpp's.
Machine host(int threads = 0);

// The instruction sets that were compiled in and that this CPU runs, best first.
std::vector<std::string> runnable_isas();

// From now on only this instruction set (of runnable_isas) is used; empty: the best again.
// For verification; not while ops run.
bool force_isa(const std::string& isa);

}  // namespace onepass
