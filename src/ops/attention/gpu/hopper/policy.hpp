// Which of the kernels that can run an attention on a GPU is the best: why each other is not.
#pragma once

#include <string>

#include "core/reasons.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"

namespace onepass::gpu_attention {

inline std::string few_rows(const Problem& p) {
  return text_of(p.attention.queries * p.attention.group(), " rows of a kv head, at most ",
                 kFewRows, ": one warp has them all");
}

// Hopper tiles one head, gpu_flash a whole GQA group. Hopper is twice as fast per tile, so
// it loses where it needs more than twice as many tiles, and where its tiles are too few to
// keep all SMs busy.
inline std::string hopper_yields(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  if (refuse_decode(p, m).empty()) return few_rows(p);
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
  if (refuse_decode(p, m).empty()) return few_rows(p);
  if (!takes_hopper(p, m)) return {};
  const AttentionFacts& a = p.attention;
  return text_of("gpu_hopper is twice as fast per tile, and has ", hopper_tiles(a),
                 " where it would have ", row_tiles(a, flash_rows(flash_dims(a.dim))));
}

inline std::string simt_yields(const Problem& p, const Machine& m) {
  const bool others = refuse_mma(p, m).empty() || refuse_decode(p, m).empty() || takes_hopper(p, m);
  return others ? "tensor cores take f16 and bf16" : "";
}

}  // namespace onepass::gpu_attention
