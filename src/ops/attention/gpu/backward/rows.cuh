// What the backward's kernels keep of a query between them.
#pragma once

#include "core/exponential.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::ops::attention {

struct BackwardRow {
  // What z is exponentiated against: +inf for a query that sees nothing, whose weights are then 0,
  // and NaN for an infinite sum, whose weights are.
  float lse;
  float mean;  // Σ do · o − dlse
};
static_assert(sizeof(BackwardRow) == gpu_attention::kBackwardRowBytes);

// The place of a query in the workspace; `token` counts in q.
__device__ inline BackwardRow& backward_row(const AttentionBackwardArgs& a, std::int64_t b,
                                            std::int64_t head, std::int64_t token) {
  const std::int64_t entry = a.q_offsets ? 0 : b;
  return reinterpret_cast<BackwardRow*>(a.workspace)[(entry * a.heads + head) * a.queries + token];
}

// exp(z − lse). No weight is above 1, but z and lse are rounded. A NaN stays one.
__device__ inline float weight_of(float z, const BackwardRow& row) {
  const float x = z - row.lse;
  return exponential(x > 0 ? 0.F : x);
}

}  // namespace onepass::ops::attention
