// From what a caller passed to arguments that a kernel can trust, or a Status that says why not.
// Looks at no memory, so that it may be a GPU's. `args` come as they were made.
#pragma once

#include "onepass/ops.hpp"
#include "rows/args.hpp"

namespace onepass {

// softmax, log_softmax, logsumexp.
Status check_softmax(Op op, ConstTensor x, Tensor y, const SoftmaxOptions& options, RowArgs& args);

Status check_backward(Op op, ConstTensor y, ConstTensor dy, Tensor dx,
                      const BackwardOptions& options, RowArgs& args);

}  // namespace onepass
