// Softmax and the losses. Each op takes a context, tensors and options, and returns a Status.
//
// A row is all elements along the axis. A logit of −inf has weight 0, a row of only −inf gives
// zeros and lse −inf, and a NaN makes its own row NaN. Accumulation is float32, or float64 for
// float64 inputs. The output may have any floating dtype; it may be the input itself if both have
// the same dtype, and must not overlap it otherwise.
#pragma once

#include "onepass/context.hpp"
#include "onepass/options.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

// y = exp(z) / Σ exp(z)
Status softmax(const Context& context, ConstTensor x, Tensor y, const SoftmaxOptions& options = {});

// y = z − log Σ exp(z)
Status log_softmax(const Context& context, ConstTensor x, Tensor y,
                   const SoftmaxOptions& options = {});

// y = log Σ exp(z); y has x's shape without the axis
Status logsumexp(const Context& context, ConstTensor x, Tensor y,
                 const SoftmaxOptions& options = {});

// dx from y = softmax(x) and the gradient dy
Status softmax_backward(const Context& context, ConstTensor y, ConstTensor dy, Tensor dx,
                        const BackwardOptions& options = {});

// dx from y = log_softmax(x) and the gradient dy
Status log_softmax_backward(const Context& context, ConstTensor y, ConstTensor dy, Tensor dx,
                            const BackwardOptions& options = {});

// The loss for a target of class indices (i32 or i64, x's shape without the axis) or of class
// probabilities (floating, x's shape). `loss` is floating and has x's shape without the axis or, if
// reduced, one element.
Status cross_entropy(const Context& context, ConstTensor x, ConstTensor target, Tensor loss,
                     const CrossEntropyOptions& options = {});

// dx from dloss, the gradient of the loss, which has the loss's shape. Passing the forward's lse
// saves a pass over x; if it is absent (a default Tensor), the op computes it again. dx may be x.
Status cross_entropy_backward(const Context& context, ConstTensor x, ConstTensor target,
                              ConstTensor lse, ConstTensor dloss, Tensor dx,
                              const CrossEntropyOptions& options = {});

// The loss and its gradient dx with one read of x; with Reduction::none, dx is the gradient of the
// sum of all losses. dx may be x. options.lse receives the lse.
Status cross_entropy_with_gradient(const Context& context, ConstTensor x, ConstTensor target,
                                   Tensor loss, Tensor dx, const CrossEntropyOptions& options = {});

}  // namespace onepass
