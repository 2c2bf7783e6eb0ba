// Turns a caller's tensors and options into arguments that a kernel can trust, or into a Status
// that says why not. Reads no element, so that tensors may be in GPU memory. `args` must be fresh.
#pragma once

#include "onepass/ops.hpp"
#include "rows/args.hpp"

namespace onepass {

// For softmax, log_softmax and logsumexp.
Status check_softmax(Op op, ConstTensor x, Tensor y, const SoftmaxOptions& options, RowArgs& args);

Status check_backward(Op op, ConstTensor y, ConstTensor dy, Tensor dx,
                      const BackwardOptions& options, RowArgs& args);

}  // namespace onepass
