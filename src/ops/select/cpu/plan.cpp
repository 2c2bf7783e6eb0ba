#include "ops/select/cpu/plan.hpp"

#include "ops/select/cpu/pieces.hpp"

namespace onepass {

CpuLaunch select_pieces(const Problem& p, const Machine& m, Reasons* reasons) {
  CpuLaunch launch = tiled_pieces(p, m, reasons);
  launch.scratch_bytes = p.in == DType::f64 ? PieceTable<double>::bytes(p.cols, p.k, launch.split)
                                            : PieceTable<float>::bytes(p.cols, p.k, launch.split);
  say(reasons, "a piece leaves its ", p.k, " candidates: ", launch.scratch_bytes, " bytes");
  return launch;
}

}  // namespace onepass
