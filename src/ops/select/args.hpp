// The arguments of topk, sample and gate beside the logits.
#pragma once

#include <algorithm>

#include "onepass/select.hpp"
#include "rows/args.hpp"

namespace onepass {

// One value for all rows, or one per row.
template <class T>
struct EachRow {
  T value{};
  Operand rows{};

  T of(const RowSpace& space, std::int64_t row) const {
    return rows ? read_at<T>(space, rows, row) : value;
  }
};

// Candidates of a sample without a top_k: usually enough for a top_p or a min_p.
inline constexpr std::int64_t kUnlessAsked = 255;
// Candidates of a sample: its top_k, or 1 if only one token can be drawn; at most `most`.
constexpr std::int64_t candidates_of_sample(std::int64_t top_k, bool one, std::int64_t most) {
  return std::min(most, one ? 1 : top_k > 0 ? top_k : kUnlessAsked);
}

struct Select {
  // How many elements each row selects: the columns of `indices`, and of the values or weights in
  // RowArgs::out.
  std::int64_t k = 0;
  Operand indices;

  // topk; RowArgs::target is the token whose rank the call asks for
  TopkValues values = TopkValues::probability;
  bool sorted = true;
  Operand target_logprob, target_rank;

  // sample; RowArgs::out is the token
  EachRow<double> temperature{1}, top_p{1}, min_p{0};
  EachRow<std::int64_t> top_k, seed, offset;
  Operand logprob, valid;

  // gate
  GateScore score = GateScore::softmax;
  Operand bias;
  bool renormalize = false;
  double scale = 1;
};

}  // namespace onepass
