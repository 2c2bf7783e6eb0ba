// What CPU variants can run, as pure functions of problem and machine: the reason why
// not, or nothing.
#pragma once

#include <string>

#include "core/machine.hpp"
#include "core/problem.hpp"

namespace onepass {

// What any CPU variant runs on.
inline std::string refuse_gpu(const Problem&, const Machine& m) {
  return m.device() == Device::cpu ? "" : "it runs on a CPU";
}

}  // namespace onepass
