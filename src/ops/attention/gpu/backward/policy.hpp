// Which kernel is the best for attention's backward on a GPU: why the other is not.
#pragma once

#include "core/reasons.hpp"
#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::gpu_attention {

// gpu_flash takes every problem that it can run.
inline bool backward_simt_yields(const Problem& p, const Machine& m, Reasons* why) {
  const bool other = refuse_backward_flash(p, m).empty();
  if (other) say(why, "tensor cores take f16 and bf16");
  return other;
}

}  // namespace onepass::gpu_attention
