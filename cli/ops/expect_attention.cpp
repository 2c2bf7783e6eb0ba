// What attention must give.

#include <algorithm>
#include <cmath>

#include "cli/ops/attention.hpp"
#include "cli/ops/bounds.hpp"
#include "cli/ops/expect.hpp"

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

// Expects one query after the other, of which neighbours mostly have the same keys.
class Expecting {
 public:
  explicit Expecting(const Call& call) : spec_(call.spec()), view_(call) {}

  void query(std::int64_t r, const Sink& sink) {
    const std::int64_t queries = spec_.shape[2], heads = spec_.shape[1];
    const std::int64_t b = r / queries / heads, h = r / queries % heads, q = r % queries;
    const auto at = static_cast<std::size_t>(b);
    if (q >= view_.sequences().queries[at]) return;  // a shorter sequence
    load_keys(b, h / view_.group());
    const std::int64_t place = view_.query_row(b, h, q);
    const oracle::Scores scores = view_.scores(b, h, q, 0, view_.sequences().lengths[at]);
    const auto dim_v = static_cast<std::size_t>(spec_.dim_v);
    const oracle::Attended row = oracle::attention(view_.row(array::x, place, spec_.shape[3]), k_,
                                                   v_, scores, view_.sink(h), dim_v);
    const Bounds bounds(spec_, row, scores, view_.sink(h));
    if (spec_.lse) sink.lse(place, bounds.lse());
    for (std::size_t j = 0; j < dim_v; ++j) {
      sink.out(place * spec_.dim_v + static_cast<std::int64_t>(j), bounds.o(j, v_, dim_v));
    }
  }

 private:
  void load_keys(std::int64_t b, std::int64_t kv_head) {
    if (b == loaded_b_ && kv_head == loaded_head_) return;
    loaded_b_ = b;
    loaded_head_ = kv_head;
    k_ = view_.keys(array::k, b, kv_head, spec_.shape[3]);
    v_ = view_.keys(array::v, b, kv_head, spec_.dim_v);
  }

  const Case& spec_;
  const AttentionView view_;
  std::int64_t loaded_b_ = -1, loaded_head_ = -1;
  oracle::Row k_, v_;
};

}  // namespace

void expect_attention(const Call& call, std::span<const std::int64_t> rows, const Sink& sink) {
  Expecting expecting(call);
  for (const std::int64_t r : rows) expecting.query(r, sink);
}

}  // namespace onepass::cli
