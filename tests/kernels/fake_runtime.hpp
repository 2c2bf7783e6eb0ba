// A CUDA runtime without a GPU: it knows the kernels that were linked, and notes which of them are
// launched. The library runs on it as on any other, from a call's checks to its launch.
#pragma once

#include <map>
#include <set>
#include <string>

#include "core/machine.hpp"

namespace onepass::fake {

// The address that a launch names, and the kernel's name.
const std::map<const void*, std::string>& kernels();

// From now on the current GPU is such a one.
void use(const Machine& machine);

// Of the kernels, those that were launched, or only asked for, since the last call.
std::set<const void*> take_reached();

}  // namespace onepass::fake
