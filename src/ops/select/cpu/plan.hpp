// How CPU variants that select from rows run.
#pragma once

#include "rows/cpu/plan.hpp"

namespace onepass {

// All threads share each row, and each leaves the candidates of its piece.
CpuLaunch select_pieces(const Problem& p, const Machine& m, Reasons* reasons);

}  // namespace onepass
