// The same for the backward: from a caller's tensors to arguments that a kernel can trust.
#pragma once

#include "core/problem.hpp"
#include "onepass/attention.hpp"
#include "ops/attention/backward_args.hpp"

namespace onepass {

struct AttentionBackwardTensors {
  ConstTensor q, k, v, o, lse, d_o;
  Tensor d_q, d_k, d_v;
};

// Reads no element. The values of offsets and lengths: check_attention_values.
Status check_attention_backward(const AttentionBackwardTensors& t,
                                const AttentionBackwardOptions& options,
                                AttentionBackwardArgs& args);

Problem describe(const AttentionBackwardArgs& args, bool deterministic);

}  // namespace onepass
