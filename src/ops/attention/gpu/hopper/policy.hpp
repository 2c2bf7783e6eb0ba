// Which of the kernels that can run an attention on a GPU is the best: why each other is not.
#pragma once

#include <string>

#include "core/reasons.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"

namespace onepass::attention_launch {

// Hopper tiles one head, flash_mma a whole GQA group. Hopper is twice as fast per tile, so it loses where it needs more than
// twice as many tiles, and where its tiles are too few to keep all SMs busy.
inline std::string hopper_yields(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  if (refuse_decode(p, m).empty()) return "rows are few for each kv head: one warp has them all";
  if (!p.batch_invariant && !hopper_fills(p, m)) {
    return text_of(hopper_tiles(a), " tiles of queries are few for ", m.gpu.processors,
                   " SMs: blocks share their keys");
  }
  if (!hopper_wastes(p)) return {};
  return text_of("its tiles have one head each, and queries are few: ", hopper_tiles(a),
                 " tiles that are mostly empty");
}

inline bool takes_hopper(const Problem& p, const Machine& m) {
  return refuse_hopper(p, m).empty() && hopper_yields(p, m).empty();
}

inline std::string flash_yields(const Problem& p, const Machine& m) {
  if (refuse_decode(p, m).empty()) return "rows are few for each kv head: one warp has them all";
  return takes_hopper(p, m) ? "hopper is twice as fast per tile" : "";
}

inline std::string simt_yields(const Problem& p, const Machine& m) {
  const bool others = refuse_mma(p, m).empty() || refuse_decode(p, m).empty() || takes_hopper(p, m);
  return others ? "tensor cores take f16 and bf16" : "";
}

}  // namespace onepass::attention_launch
