// As ops/softmax/check.hpp, of cross-entropy.
#pragma once

#include "onepass/ops.hpp"
#include "rows/args.hpp"

namespace onepass {

// `loss` must be absent from what a backward passes, `dloss`, `lse` and `dx` from a forward. A
// backward with_loss has `loss` and `dx`.
struct CrossEntropyTensors {
  ConstTensor x{}, target{}, lse{}, dloss{};
  Tensor loss{}, dx{};
  bool with_loss = false;
};

Status check_cross_entropy(Op op, const CrossEntropyTensors& tensors,
                           const CrossEntropyOptions& options, RowArgs& args);

// What a GPU's kernels reduce: losses, or of a gradient alone what a mean divides by.
constexpr Reduction reduced_on_gpu(Op op, bool with_loss, Reduction wanted) {
  const bool losses = op == Op::cross_entropy || with_loss;
  return losses || wanted == Reduction::mean ? wanted : Reduction::none;
}

// The targets' own values, on a CPU only.
Status check_targets(const RowArgs& args);

}  // namespace onepass
