// What a reduced loss needs before and after its rows.
#pragma once

#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "rows/args.hpp"

namespace onepass::ops::loss {

Status reduce_losses(const RowArgs& args, const Plan& plan);    // row_losses into out
Status find_mean_scale(const RowArgs& args, const Plan& plan);  // into mean_scale

template <class Run>
Status with_reduction(const RowArgs& args, const Plan& plan, Run run) {
  const bool reduced = args.reduction != Reduction::none;
  const bool gradient = args.op == Op::cross_entropy_backward;
  const bool loss = !gradient || args.loss;
  if (args.reduction == Reduction::mean && gradient) {
    if (Status status = find_mean_scale(args, plan); !status.ok()) return status;
  }
  if (args.space.rows > 0) {
    if (Status status = run(args, plan); !status.ok()) return status;
  }
  return reduced && loss ? reduce_losses(args, plan) : Status{};
}

}  // namespace onepass::ops::loss
