// Machines, with what was measured on such: the one at hand, and those of the tuning tables, which
// `explain` plans for without having one.
#pragma once

#include <span>
#include <string_view>

#include "core/machine.hpp"
#include "onepass/status.hpp"

namespace onepass {

// The host of this process, with `threads` of its threads; 0: all.
Machine this_host(int threads = 0);

// The current GPU; the strings live as long as the program.
Status this_gpu(Machine& out);

std::span<const Machine> known_machines();
std::span<const Machine> known_gpus();
const Machine* find_machine(std::string_view name);

// The tuning for an instruction set, by Highway's name of it.
const CpuTuning& tuning_for(std::string_view isa);

}  // namespace onepass
