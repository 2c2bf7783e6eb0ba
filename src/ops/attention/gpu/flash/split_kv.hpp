// Split-KV: where each part of the keys leaves its partial result of a row, and what combines them.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/flash/plan.hpp"

namespace onepass::ops::attention {

// Partial results in the workspace: for each partial the means of all rows, dim floats per row;
// then for each partial the lse of all rows.
struct Partials {
  int count = 1;  // parts of the keys
  int each = 1;   // partials per part and row
  int keys = 0;   // per part
  int dim = 0;
  std::int64_t rows = 0;  // of all heads and sequences
  float* means = nullptr;
  float* lse = nullptr;

  ONEPASS_HD int left() const { return count * each; }
  ONEPASS_HD std::int64_t place(int which, std::int64_t row) const { return which * rows + row; }
};

// A row's number among all.
ONEPASS_HD inline std::int64_t row_number(const AttentionArgs& a, std::int64_t batch,
                                          std::int64_t head, std::int64_t query) {
  return (batch * a.heads + head) * a.queries + query;
}

inline Partials partials_of(const AttentionArgs& a, const gpu_attention::FlashLaunch& launch) {
  Partials partials{
      .count = launch.parts, .each = launch.left_by_part, .keys = launch.part_keys, .dim = a.dim};
  partials.rows = (a.q_offsets ? 1 : a.batch) * a.heads * a.queries;
  partials.means = reinterpret_cast<float*>(a.workspace);
  partials.lse = partials.means + partials.left() * partials.rows * a.dim;
  return partials;
}

// Merges the partials of each row into o and lse.
Status combine(const AttentionArgs& a, const Partials& partials);

}  // namespace onepass::ops::attention
