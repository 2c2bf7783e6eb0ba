// Keys in parts: where each part leaves what it found of a row, and what joins them.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/flash/plan.hpp"

namespace onepass::ops::attention {

// In the workspace, for each who leaves something all rows: their sums as means, dim floats each,
// and then their lse.
struct Parts {
  int count = 1;
  int each = 1;  // leaves so many things of a row
  int keys = 0;  // a part
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

inline Parts parts_of(const AttentionArgs& a, const attention_launch::FlashLaunch& launch) {
  Parts parts{
      .count = launch.parts, .each = launch.left_by_part, .keys = launch.part_keys, .dim = a.dim};
  parts.rows = (a.q_offsets ? 1 : a.batch) * a.heads * a.queries;
  parts.means = reinterpret_cast<float*>(a.workspace);
  parts.lse = parts.means + parts.left() * parts.rows * a.dim;
  return parts;
}

// o and lse of what the parts left.
Status join_parts(const AttentionArgs& a, const Parts& parts);

}  // namespace onepass::ops::attention
