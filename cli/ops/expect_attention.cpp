// What attention must give.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "cli/ops/bounds.hpp"
#include "cli/ops/call.hpp"
#include "cli/ops/expect.hpp"
#include "cli/problem/sequences.hpp"
#include "oracle/attention.hpp"

namespace onepass::cli {
namespace {

// What a row's scores, weights and sums may be off by.
class Bounds {
 public:
  Bounds(const Case& spec, const oracle::Attended& row, const oracle::Scores& scores,
         std::optional<double> sink)
      : spec_(spec),
        computed_(compute_type(spec.in)),
        unit_(epsilon(computed_)),
        row_(row),
        scores_(scores) {
    oracle::Row z = row.z;
    if (sink) z.push_back(*sink);
    for (const double each : z) m_ = std::max(m_, each);
    p_ = oracle::softmax(z);
    // Sums of one element after the other: rounding errors walk as far as the root of their number.
    walk_ = ulps(spec.op) + std::sqrt(static_cast<double>(z.size()));
    state_error_ = unit_ * walk_;
    for (std::size_t t = 0; t < row.z.size(); ++t) {
      const double e = p_[t] * logit_error(t);
      state_error_ += std::isfinite(e) ? e : 0;
    }
    // Tensor cores take weights of 16 bits.
    const bool rounds = spec.device == Device::cuda && size_of(spec.in) == 2;
    const double weight_rounding = rounds ? epsilon(spec.in) / 2 : 0;
    if (rounds) weight_floor_ = smallest(spec.in) / 2;
    for (std::size_t t = 0; t < row.z.size(); ++t) {
      term_error_.push_back(logit_error(t) + state_error_ + weight_rounding + unit_ * walk_);
    }
  }

  Expected lse() const {
    return {in_range(row_.lse, largest(computed_)),
            state_error_ + unit_ * ulps(spec_.op) * (finite_size(row_.lse) + finite_size(m_)) +
                smallest(computed_)};
  }

  // Element j of o; v is that column of the values, `dim` apart.
  Expected o(std::size_t j, std::span<const double> v, std::size_t dim) const {
    const double value = in_range(row_.o[j], std::min(largest(spec_.out), largest(computed_)));
    double error = 0;
    for (std::size_t t = 0; t < row_.z.size(); ++t) {
      const double size = finite_size(p_[t] * v[t * dim + j]);
      error += size * term_error_[t];
      // A weight below the smallest normal number may be gone, and f16 rounds those below its
      // own to multiples.
      const double lost = std::min(p_[t], std::max(smallest(computed_), weight_floor_));
      error += finite_size(lost * v[t * dim + j]);
    }
    return {value, error + finite_size(value) * epsilon(spec_.out) * 0.51 + smallest(spec_.out) +
                       smallest(computed_)};
  }

 private:
  double logit_error(std::size_t t) const {
    const double terms = 2 + std::sqrt(static_cast<double>(spec_.shape[3])) / 2;
    double size = finite_size(row_.z[t] - m_) + terms * finite_size(row_.size[t]) +
                  4 * (finite_size(row_.z[t]) + finite_size(m_) + scores_.softcap);
    if (!scores_.additive.empty()) size += finite_size(scores_.additive[t]);
    const auto distance = static_cast<double>(static_cast<std::int64_t>(t) - scores_.own);
    return unit_ * (size + 2 * std::abs(scores_.slope * distance));
  }

  const Case& spec_;
  const DType computed_;  // the type of all sums
  const double unit_;
  const oracle::Attended& row_;
  const oracle::Scores& scores_;
  oracle::Row p_;
  double m_ = -std::numeric_limits<double>::infinity();
  double walk_ = 0, state_error_ = 0;
  double weight_floor_ = 0;  // half of what the smallest weights of 16 bits are multiples of
  oracle::Row term_error_;   // of p[t] · v[t], relative to it
};

// A call's tensors, as the oracle wants them.
class View {
 public:
  explicit View(const Call& call)
      : call_(call),
        spec_(call.spec()),
        sequences_(sequences_of(spec_)),
        dim_(static_cast<std::size_t>(spec_.shape[3])),
        dim_v_(static_cast<std::size_t>(spec_.dim_v)) {
    std::exclusive_scan(sequences_.queries.begin(), sequences_.queries.end(),
                        std::back_inserter(q_first_), std::int64_t{0});
    std::exclusive_scan(sequences_.keys.begin(), sequences_.keys.end(),
                        std::back_inserter(k_first_), std::int64_t{0});
  }

  void expect(std::int64_t r, const Sink& sink) {
    const std::int64_t queries = spec_.shape[2], heads = spec_.shape[1];
    const std::int64_t b = r / queries / heads, h = r / queries % heads, q = r % queries;
    const auto at = static_cast<std::size_t>(b);
    if (q >= sequences_.queries[at]) return;  // a shorter sequence
    const std::int64_t place = spec_.ragged ? h * sequences_.all_queries() + q_first_[at] + q : r;
    load_keys(b, h / std::max<std::int64_t>(heads / std::max<std::int64_t>(spec_.kv_heads, 1), 1));
    oracle::Row query(dim_);
    for (std::size_t j = 0; j < dim_; ++j) query[j] = call_.in().get(element(place, j, dim_));
    const oracle::Scores scores = scores_of(b, h, q);
    std::optional<double> extra;
    if (call_[array::sinks].present()) extra = call_[array::sinks].get(h);
    const oracle::Attended row = oracle::attention(query, k_, v_, scores, extra, dim_v_);
    const Bounds bounds(spec_, row, scores, extra);
    if (spec_.lse) sink.lse(place, bounds.lse());
    for (std::size_t j = 0; j < dim_v_; ++j) {
      sink.out(element(place, j, dim_v_), bounds.o(j, v_, dim_v_));
    }
  }

 private:
  static std::int64_t element(std::int64_t row, std::size_t j, std::size_t dim) {
    return row * static_cast<std::int64_t>(dim) + static_cast<std::int64_t>(j);
  }

  // The row of k or v that holds a key.
  std::int64_t key_row(std::int64_t b, std::int64_t kv_head, std::int64_t t) const {
    const auto at = static_cast<std::size_t>(b);
    if (spec_.page > 0) {
      const std::int64_t table = call_[array::pages].tensor().shape[1];
      const auto page =
          static_cast<std::int64_t>(call_[array::pages].get(b * table + t / spec_.page));
      return (page * spec_.kv_heads + kv_head) * spec_.page + t % spec_.page;
    }
    if (spec_.ragged) return kv_head * sequences_.all_keys() + k_first_[at] + t;
    return (b * spec_.kv_heads + kv_head) * spec_.keys + t;
  }

  // Kept for the next row, which mostly has the same.
  void load_keys(std::int64_t b, std::int64_t kv_head) {
    if (b == loaded_b_ && kv_head == loaded_head_) return;
    loaded_b_ = b;
    loaded_head_ = kv_head;
    const auto keys = static_cast<std::size_t>(sequences_.lengths[static_cast<std::size_t>(b)]);
    k_.clear();
    v_.clear();
    for (std::size_t t = 0; t < keys; ++t) {
      const std::int64_t row = key_row(b, kv_head, static_cast<std::int64_t>(t));
      for (std::size_t j = 0; j < dim_; ++j) {
        k_.push_back(call_[array::k].get(element(row, j, dim_)));
      }
      for (std::size_t j = 0; j < dim_v_; ++j) {
        v_.push_back(call_[array::v].get(element(row, j, dim_v_)));
      }
    }
  }

  // Of the keys of a sequence, what the options make of a query's scores.
  oracle::Scores scores_of(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const auto at = static_cast<std::size_t>(b);
    const std::int64_t queries = sequences_.queries[at], keys = sequences_.lengths[at];
    oracle::Scores s{.scale = spec_.scale, .softcap = spec_.softcap, .own = q + keys - queries};
    if (call_[array::alibi].present()) s.slope = call_[array::alibi].get(h);
    for (std::int64_t t = 0; t < keys; ++t) {
      const auto masked = [&](const GuardedArray& mask) {
        return mask.get(mask_index(b, h, q, t));
      };
      if (call_[array::additive].present()) s.additive.push_back(masked(call_[array::additive]));
      s.keep.push_back(
          (!call_[array::boolean].present() || masked(call_[array::boolean]) != 0) &&
          (!spec_.causal || oracle::causal_keeps(q, t, queries, keys)) &&
          oracle::window_keeps(q, t, queries, keys, spec_.window_left, spec_.window_right));
    }
    return s;
  }

  std::int64_t mask_index(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t t) const {
    const Tensor& mask =
        (call_[array::additive].present() ? call_[array::additive] : call_[array::boolean])
            .tensor();
    const auto last = static_cast<std::size_t>(mask.rank - 1);
    const auto at = static_cast<std::size_t>(b);
    const std::int64_t row = spec_.ragged ? q_first_[at] + q : q;
    const std::int64_t key = spec_.ragged && spec_.page == 0 ? k_first_[at] + t : t;
    const std::int64_t matrix = spec_.broadcast ? 0 : (spec_.ragged ? 0 : b * spec_.shape[1]) + h;
    return (matrix * mask.shape[last - 1] + row) * mask.shape[last] + key;
  }

  const Call& call_;
  const Case& spec_;
  const Sequences sequences_;
  const std::size_t dim_, dim_v_;
  std::vector<std::int64_t> q_first_, k_first_;
  std::int64_t loaded_b_ = -1, loaded_head_ = -1;
  oracle::Row k_, v_;
};

}  // namespace

void expect_attention(const Call& call, std::span<const std::int64_t> rows, const Sink& sink) {
  View view(call);
  for (const std::int64_t r : rows) view.expect(r, sink);
}

}  // namespace onepass::cli
