// What a reduced loss needs before and after its rows.
#pragma once

#include "onepass/status.hpp"
#include "rows/args.hpp"

namespace onepass::ops::loss {

Status reduce_losses(const RowArgs& args);    // row_losses into out
Status find_mean_scale(const RowArgs& args);  // into mean_scale

template <class Run>
Status with_reduction(const RowArgs& args, Run run) {
  const bool reduced = args.reduction != Reduction::none;
  const bool gradient = args.op == Op::cross_entropy_backward;
  const bool loss = !gradient || args.loss;
  if (args.reduction == Reduction::mean && gradient) {
    if (Status status = find_mean_scale(args); !status.ok()) return status;
  }
  if (args.space.rows > 0) {
    if (Status status = run(); !status.ok()) return status;
  }
  return reduced && loss ? reduce_losses(args) : Status{};
}

}  // namespace onepass::ops::loss
