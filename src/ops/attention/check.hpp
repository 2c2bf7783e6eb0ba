// From what a caller of attention passed to arguments that a kernel can trust, or a Status
// that says why not.
#pragma once

#include "core/problem.hpp"
#include "onepass/attention.hpp"
#include "ops/attention/args.hpp"

namespace onepass {

// Looks at no memory, so that it may be a GPU's.
Status check_attention(ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                       const AttentionOptions& options, AttentionArgs& args);

// What offsets, lengths and pages hold, on a CPU.
Status check_attention_values(const AttentionArgs& args);

// The facts the dispatcher needs.
Problem describe(const AttentionArgs& args);

}  // namespace onepass
