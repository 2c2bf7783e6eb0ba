// What CPU variants refuse, as pure functions of problem and machine: the reason, or nothing.
#pragma once

#include <string>

#include "core/machine.hpp"
#include "core/problem.hpp"

namespace onepass {

// Any CPU variant runs on any CPU, and refuses GPUs.
inline std::string refuse_gpu(const Problem&, const Machine& m) {
  return m.device() == Device::cpu ? "" : "it runs on a CPU";
}

}  // namespace onepass
