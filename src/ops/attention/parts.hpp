// Keys in parts: where each part leaves what it found of a row, and what joins them.
#pragma once

#include "dispatch/attention_launch.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "ops/attention/args.hpp"

namespace onepass::ops::attention {

// In the workspace, for each who leaves something all rows: their sums as means, dim floats each, and then their lse.
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

inline Parts parts_of(const AttentionArgs& a, const Plan& plan) {
  Parts parts{.count = plan.split, .keys = static_cast<int>(plan.keys), .dim = a.dim};
  parts.rows = (a.q_offsets ? 1 : a.batch) * a.heads * a.queries;
  // As many as the plan has room for.
  const std::size_t one = attention_launch::left_bytes(parts.count, parts.rows, a.dim);
  if (parts.count > 1 && parts.rows > 0) parts.each = static_cast<int>(plan.scratch_bytes / one);
  parts.means = reinterpret_cast<float*>(a.workspace);
  parts.lse = parts.means + parts.left() * parts.rows * a.dim;
  return parts;
}

// o and lse of what the parts left.
Status join_parts(const AttentionArgs& a, const Parts& parts);

}  // namespace onepass::ops::attention
