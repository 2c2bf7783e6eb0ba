// The ops. Each takes a context, views and options, and answers with a Status.
//
// Along the axis lies a row. A −inf weighs 0, a row of only −inf gives zeros and lse −inf, a NaN
// makes its own row NaN. Accumulation is float32, or float64 when the input is. The output may have
// another floating dtype than the input; it may be the input itself when the dtypes are the same,
// and must not overlap it otherwise.
#pragma once

#include "onepass/context.hpp"
#include "onepass/options.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

// y = exp(z) / Σ exp(z)
Status softmax(const Context& context, ConstTensor x, Tensor y, const SoftmaxOptions& options = {});

// y = z − log Σ exp(z)
Status log_softmax(const Context& context, ConstTensor x, Tensor y,
                   const SoftmaxOptions& options = {});

// y = log Σ exp(z), of x's shape without the axis
Status logsumexp(const Context& context, ConstTensor x, Tensor y,
                 const SoftmaxOptions& options = {});

// dx from y = softmax(x) and the gradient in y
Status softmax_backward(const Context& context, ConstTensor y, ConstTensor dy, Tensor dx,
                        const BackwardOptions& options = {});

// dx from y = log_softmax(x) and the gradient in y
Status log_softmax_backward(const Context& context, ConstTensor y, ConstTensor dy, Tensor dx,
                            const BackwardOptions& options = {});

// The loss of class indices (i32 or i64, x's shape without the axis) or of the classes'
// probabilities (floating, x's shape); loss is floating, of x's shape without the axis or,
// reduced, of one element.
Status cross_entropy(const Context& context, ConstTensor x, ConstTensor target, Tensor loss,
                     const CrossEntropyOptions& options = {});

// dx from the gradient in loss (of loss's shape). lse, as the forward wrote it, saves a pass over
// x; leave it absent (a default Tensor) to have it found again. dx may be x.
Status cross_entropy_backward(const Context& context, ConstTensor x, ConstTensor target,
                              ConstTensor lse, ConstTensor dloss, Tensor dx,
                              const CrossEntropyOptions& options = {});

// Both at once: the loss, and in dx its gradient (of the sum of all losses where they are not
// reduced), with one read of x. dx may be x; options.lse takes the lse.
Status cross_entropy_with_gradient(const Context& context, ConstTensor x, ConstTensor target,
                                   Tensor loss, Tensor dx, const CrossEntropyOptions& options = {});

}  // namespace onepass
