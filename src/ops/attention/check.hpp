// Turns a caller's tensors and options of attention into arguments that a kernel can trust, or into
// a Status that says why not.
#pragma once

#include "core/problem.hpp"
#include "onepass/attention.hpp"
#include "ops/attention/args.hpp"

namespace onepass {

// Reads no element, so that tensors may be in GPU memory.
Status check_attention(ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                       const AttentionOptions& options, AttentionArgs& args);

// Checks the values of offsets, lengths and pages, on a CPU.
Status check_attention_values(const AttentionArgs& args);

// Describes a checked call to the dispatcher.
Problem describe(const AttentionArgs& args);

}  // namespace onepass
