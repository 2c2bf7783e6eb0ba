// The checks of cross-entropy, as those in ops/softmax/check.hpp.
#pragma once

#include "onepass/ops.hpp"
#include "rows/args.hpp"

namespace onepass {

// A forward has no `dloss`, `lse` or `dx`; a backward has no `loss`. A backward with_loss has
// `loss` and `dx`.
struct CrossEntropyTensors {
  ConstTensor x{}, target{}, lse{}, dloss{};
  Tensor loss{}, dx{};
  bool with_loss = false;
};

Status check_cross_entropy(Op op, const CrossEntropyTensors& tensors,
                           const CrossEntropyOptions& options, RowArgs& args);

// What a GPU's kernels reduce: the losses or, for a gradient alone, the divisor of a mean.
constexpr Reduction reduced_on_gpu(Op op, bool with_loss, Reduction wanted) {
  const bool losses = op == Op::cross_entropy || with_loss;
  return losses || wanted == Reduction::mean ? wanted : Reduction::none;
}

// Checks the values of targets, on a CPU only.
Status check_targets(const RowArgs& args);

}  // namespace onepass
