// What variants without options refuse: the reason, or nothing.
#pragma once

#include <string>

#include "core/machine.hpp"
#include "core/problem.hpp"

namespace onepass {

inline std::string refuse_options(const Problem& p, const Machine&) {
  if (!p.plain) return "it takes no scale, temperature, softcap or mask tensor";
  if (!p.whole_rows) return "it takes no length, causal or window mask";
  if (p.wants_lse) return "it writes no lse";
  return {};
}

}  // namespace onepass
