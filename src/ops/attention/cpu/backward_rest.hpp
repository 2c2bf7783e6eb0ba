// What all CPU variants of attention's backward do in the same way: gradients of the sinks and of
// the additive mask, and zeros for tokens that take no part. Each element is summed by one thread
// in a fixed order.
#pragma once

#include "merge/team.hpp"
#include "ops/attention/backward_args.hpp"

namespace onepass {

// d_k and d_v of keys past their sequence's length, and all gradients of tokens past the last
// sequence. A team calls it once, each thread by itself.
void zero_unused(const AttentionBackwardArgs& args, const Team& team);

// Every thread takes a share of the elements.
void sink_gradients(const AttentionBackwardArgs& args, const Team& team);
void mask_gradients(const AttentionBackwardArgs& args, const Team& team);

}  // namespace onepass
