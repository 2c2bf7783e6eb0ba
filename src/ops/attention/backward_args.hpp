// The checked arguments of attention's backward. Plain data, like those of the forward.
#pragma once

#include <array>

#include "ops/attention/args.hpp"

namespace onepass {

// o and lse are inputs here.
struct AttentionBackwardArgs : AttentionArgs {
  Heads d_o, d_lse;
  Heads d_q, d_k, d_v;
  Heads d_sinks;                             // one value per head
  Heads d_additive;                          // laid out as the additive mask
  std::array<std::int64_t, 4> mask_shape{};  // of d_additive: batch, heads, queries, keys, or 1
  bool accumulate = false;
};

}  // namespace onepass
