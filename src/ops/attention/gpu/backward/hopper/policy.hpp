// Which kernel is the best for attention's backward on a GPU: why the others are not.
#pragma once

#include "core/reasons.hpp"
#include "ops/attention/gpu/backward/hopper/plan.hpp"
#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::gpu_attention {

// gpu_hopper takes every problem that it can run.
inline bool backward_flash_yields(const Problem& p, const Machine& m, Reasons* why) {
  const bool other = refuse_backward_hopper(p, m).empty();
  if (other) say(why, "gpu_hopper makes the weights once and not twice");
  return other;
}

inline bool backward_simt_yields(const Problem& p, const Machine& m, Reasons* why) {
  const bool others = refuse_backward_flash(p, m).empty() || refuse_backward_hopper(p, m).empty();
  if (others) say(why, "tensor cores take f16 and bf16");
  return others;
}

}  // namespace onepass::gpu_attention
