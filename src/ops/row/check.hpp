// From what a caller passed to arguments that a kernel can trust, or a Status that says why not.
// Looks at no memory, so that it may be a GPU's. `args` come as they were made.
#pragma once

#include "onepass/ops.hpp"
#include "ops/row/args.hpp"

namespace onepass {

// softmax, log_softmax, logsumexp.
Status check_softmax(Op op, ConstTensor x, Tensor y, const SoftmaxOptions& options, RowArgs& args);

Status check_backward(Op op, ConstTensor y, ConstTensor dy, Tensor dx,
                      const BackwardOptions& options, RowArgs& args);

// `loss` must be absent from what a backward passes, `dloss`, `lse` and `dx` from a forward. A backward
// with_loss has `loss` and `dx`.
struct CrossEntropyTensors {
  ConstTensor x{}, target{}, lse{}, dloss{};
  Tensor loss{}, dx{};
  bool with_loss = false;
};

Status check_cross_entropy(Op op, const CrossEntropyTensors& tensors,
                           const CrossEntropyOptions& options, RowArgs& args);

// What the small tensors with a value a row (targets, lengths, temperatures) hold. On a CPU only: a
// GPU's memory cannot be looked at without waiting for it.
Status check_row_values(const RowArgs& args);

// The facts the dispatcher needs.
Problem describe(const RowArgs& args);

}  // namespace onepass
