// Which of the kernels that can run an attention on a GPU is the best: why each other is not.
#pragma once

#include <string>

#include "core/reasons.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"

namespace onepass::gpu_attention {

// gpu_decode takes every problem that it can run.
inline bool is_decode(const Problem& p, const Machine& m, Reasons* why) {
  if (!refuse_decode(p, m).empty()) return false;
  say(why, p.attention.queries * p.attention.group(), " rows of a KV head, at most ", kFewRows,
      ": one warp has them all");
  return true;
}

// gpu_hopper tiles one head, gpu_flash a whole GQA group. gpu_hopper is twice as fast per tile, so
// it loses where it needs more than twice as many tiles, and where its tiles are too few to keep
// all SMs busy.
inline bool hopper_yields(const Problem& p, const Machine& m, Reasons* why) {
  const AttentionFacts& a = p.attention;
  if (is_decode(p, m, why)) return true;
  if (!p.batch_invariant && !hopper_fills(p, m)) {
    say(why, hopper_tiles(a), " tiles of queries are few for ", m.gpu.processors,
        " SMs: blocks share their keys");
    return true;
  }
  if (!hopper_wastes(p)) return false;
  say(why, "its tiles have one head each, and queries are few: ", hopper_tiles(a),
      " tiles that are mostly empty");
  return true;
}

inline bool takes_hopper(const Problem& p, const Machine& m) {
  return refuse_hopper(p, m).empty() && !hopper_yields(p, m, nullptr);
}

inline bool flash_yields(const Problem& p, const Machine& m, Reasons* why) {
  if (is_decode(p, m, why)) return true;
  if (!takes_hopper(p, m)) return false;
  const AttentionFacts& a = p.attention;
  say(why, "gpu_hopper is twice as fast per tile, and has ", hopper_tiles(a),
      " where it would have ", row_tiles(a, flash_rows(flash_dims(a.dim))));
  return true;
}

inline bool simt_yields(const Problem& p, const Machine& m, Reasons* why) {
  const bool others = refuse_mma(p, m).empty() || refuse_decode(p, m).empty() || takes_hopper(p, m);
  if (others) say(why, "tensor cores take f16 and bf16");
  return others;
}

}  // namespace onepass::gpu_attention
