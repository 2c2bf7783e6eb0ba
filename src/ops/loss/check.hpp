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

// The targets' own values, on a CPU only.
Status check_targets(const RowArgs& args);

}  // namespace onepass
