// What attention's backward must give.

#include "oracle/attention_backward.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/ops/attention.hpp"
#include "cli/ops/bounds.hpp"
#include "cli/ops/expect.hpp"

namespace onepass::cli {
namespace {

// A sum of products, with what its terms may be off by and their sizes.
struct Total {
  double value = 0, error = 0, size = 0;
  bool open = false;

  // A factor of 0 adds nothing, whatever x is: an inf or NaN counts unless rounding makes it 0.
  void add(double factor, double factor_error, double x) {
    if (factor != 0) value += factor * x;
    open = open || (!std::isfinite(x) && factor_error > 0 && std::abs(factor) <= factor_error);
    error += finite_size(factor_error * x);
    size += finite_size(factor * x);
  }
};

// What a query's weights and gradients of scores may be off by.
class QueryErrors {
 public:
  QueryErrors(const Case& spec, const oracle::AttentionGradient& g, const oracle::Scores& scores,
              const oracle::Upstream& up)
      : spec_(spec),
        unit_(epsilon(compute_type(spec.in))),
        g_(g),
        scores_(scores),
        up_(up),
        // Tensor cores take weights and gradients of scores in 16 bits.
        rounds_(spec.device == Device::cuda && size_of(spec.in) == 2) {
    const double terms = 2 + std::sqrt(static_cast<double>(spec.dim_v)) / 2;
    mean_error_ = unit_ * (terms * finite_size(g.d_mean_size) + 2 * finite_size(up.d_lse));
  }

  double weight(std::size_t t) const { return weight_error(t) + finite_size(g_.p[t]) * rounding(); }

  double d_z(std::size_t t) const {
    const double terms = 2 + std::sqrt(static_cast<double>(spec_.dim_v)) / 2;
    const double sizes = finite_size(g_.d_p[t]) + finite_size(g_.d_mean);
    const double difference =
        mean_error_ + unit_ * (terms * finite_size(g_.d_p_size[t]) + 2 * sizes);
    return weight_error(t) * (finite_size(g_.d_p[t] - g_.d_mean) + difference) +
           finite_size(g_.p[t]) * difference;
  }

  double d_score(std::size_t t) const {
    double error = d_z(t) * finite_size(g_.steep[t]);
    if (scores_.softcap > 0) {
      const double tanh = std::sqrt(std::max(0.0, 1 - g_.steep[t]));
      const double scaled = score_terms() * finite_size(g_.size[t]) / scores_.softcap;
      error += finite_size(g_.d_z[t]) * unit_ * (2 * tanh * (4 + scaled) + 2);
    }
    return error * std::abs(scores_.scale) + finite_size(g_.d_score[t]) * (4 * unit_ + rounding()) +
           (g_.p[t] == 0 ? 0 : floor());
  }

  double d_sink(double sink) const {
    const double size = finite_size(sink) + finite_size(up_.lse);
    const double relative = unit_ * (4 * size + 8);
    const double p = std::min(1.0, finite_size(std::exp(sink - up_.lse)));
    return p * (finite_size(g_.d_mean) * relative + mean_error_);
  }

 private:
  double score_terms() const { return 2 + std::sqrt(static_cast<double>(spec_.shape[3])) / 2; }

  // Beyond all measure where z and lse are so large that their difference has no digits.
  double weight_error(std::size_t t) const {
    if (g_.z[t] == -std::numeric_limits<double>::infinity()) return 0;
    const double relative = weight_relative(t);
    return relative > 0.5 ? 1 : finite_size(g_.p[t]) * relative + lost(t);
  }

  // That of z − lse, and exp's own.
  double weight_relative(std::size_t t) const {
    double size = finite_size(g_.z[t] - up_.lse) + score_terms() * finite_size(g_.size[t]) +
                  4 * (finite_size(g_.z[t]) + finite_size(up_.lse) + scores_.softcap);
    if (!scores_.additive.empty()) size += finite_size(scores_.additive[t]);
    const auto distance = static_cast<double>(static_cast<std::int64_t>(t) - scores_.own);
    return unit_ * (size + 2 * std::abs(scores_.slope * distance) + ulps(spec_.op));
  }

  double rounding() const { return rounds_ ? epsilon(spec_.in) / 2 : 0; }
  double floor() const { return rounds_ ? smallest(spec_.in) / 2 : 0; }
  // A weight below the smallest normal number may be gone.
  double lost(std::size_t t) const {
    return std::min(finite_size(g_.p[t]), std::max(smallest(compute_type(spec_.in)), floor()));
  }

  const Case& spec_;
  const double unit_;
  const oracle::AttentionGradient& g_;
  const oracle::Scores& scores_;
  const oracle::Upstream& up_;
  const bool rounds_;
  double mean_error_ = 0;
};

class Expecting {
 public:
  Expecting(const Call& call, const Sink& sink)
      : call_(call),
        spec_(call.spec()),
        sink_(sink),
        view_(call),
        dim_(static_cast<std::size_t>(spec_.shape[3])),
        dim_v_(static_cast<std::size_t>(spec_.dim_v)) {}

  // All gradients.
  void all() {
    mask_.resize(size_of_written(array::d_additive));
    sinks_.resize(size_of_written(array::d_sinks));
    for (std::int64_t b = 0; b < spec_.shape[0]; ++b) {
      for (std::int64_t h = 0; h < spec_.kv_heads; ++h) whole_head(b, h);
    }
    for (std::size_t i = 0; i < mask_.size(); ++i) {
      give(array::d_additive, static_cast<std::int64_t>(i), mask_[i],
           static_cast<double>(spec_.shape[0] * spec_.shape[1]));
    }
    for (std::size_t h = 0; h < sinks_.size(); ++h) {
      give(array::d_sinks, static_cast<std::int64_t>(h), sinks_[h],
           static_cast<double>(spec_.shape[0] * spec_.shape[2]));
    }
  }

  // Those of a query.
  void query(std::int64_t r) {
    const std::int64_t queries = spec_.shape[2], heads = spec_.shape[1];
    const std::int64_t b = r / queries / heads, h = r / queries % heads, q = r % queries;
    if (q >= queries_of(b)) return;  // a shorter sequence
    load_keys(b, h / view_.group());
    const oracle::Scores scores = view_.scores(b, h, q, 0, keys_of(b));
    const oracle::Upstream up = upstream(b, h, q);
    const oracle::AttentionGradient g = gradient(b, h, q, k_, v_, scores, up);
    give_query(b, h, q, g, QueryErrors(spec_, g, scores, up));
  }

  // Those of a key and a value, to which many queries contribute.
  void key(std::int64_t b, std::int64_t kv_head, std::int64_t t) {
    std::vector<Total> d_k(dim_), d_v(dim_v_);
    const std::int64_t row = view_.key_row(b, kv_head, t);
    const oracle::Row k = view_.row(array::k, row, spec_.shape[3]);
    const oracle::Row v = view_.row(array::v, row, spec_.dim_v);
    const std::int64_t group = view_.group();
    for (std::int64_t h = kv_head * group; t < keys_of(b) && h < (kv_head + 1) * group; ++h) {
      for (std::int64_t q = 0; q < queries_of(b); ++q) {
        const oracle::Scores scores = view_.scores(b, h, q, t, 1);
        const oracle::Upstream up = upstream(b, h, q);
        const oracle::AttentionGradient g = gradient(b, h, q, k, v, scores, up);
        add_to_key(b, h, q, g, QueryErrors(spec_, g, scores, up), 0, d_k, d_v);
      }
    }
    give_key(b, row, d_k.data(), d_v.data());
  }

 private:
  using Errors = QueryErrors;

  std::int64_t queries_of(std::int64_t b) const {
    return view_.sequences().queries[static_cast<std::size_t>(b)];
  }
  std::int64_t keys_of(std::int64_t b) const {
    return view_.sequences().lengths[static_cast<std::size_t>(b)];
  }
  std::size_t size_of_written(array::Id id) const {
    return call_.writes(id) ? static_cast<std::size_t>(call_[id].size()) : 0;
  }

  void load_keys(std::int64_t b, std::int64_t kv_head) {
    k_ = view_.keys(array::k, b, kv_head, spec_.shape[3]);
    v_ = view_.keys(array::v, b, kv_head, spec_.dim_v);
  }

  oracle::Upstream upstream(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const std::int64_t row = view_.query_row(b, h, q);
    return {.o = view_.row(array::o, row, spec_.dim_v),
            .lse = call_[array::lse].get(row),
            .d_o = view_.row(array::d_o, row, spec_.dim_v),
            .d_lse = spec_.d_lse ? call_[array::d_lse].get(row) : 0};
  }

  oracle::AttentionGradient gradient(std::int64_t b, std::int64_t h, std::int64_t q,
                                     const oracle::Row& k, const oracle::Row& v,
                                     const oracle::Scores& scores,
                                     const oracle::Upstream& up) const {
    const oracle::Row query = view_.row(array::x, view_.query_row(b, h, q), spec_.shape[3]);
    return oracle::attention_backward(query, k, v, scores, view_.sink(h), up);
  }

  void whole_head(std::int64_t b, std::int64_t kv_head) {
    load_keys(b, kv_head);
    const auto all_keys =
        static_cast<std::size_t>(view_.sequences().keys[static_cast<std::size_t>(b)]);
    std::vector<Total> d_k(all_keys * dim_), d_v(all_keys * dim_v_);
    const std::int64_t group = view_.group();
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (std::int64_t q = 0; q < queries_of(b); ++q) {
        const oracle::Scores scores = view_.scores(b, h, q, 0, keys_of(b));
        const oracle::Upstream up = upstream(b, h, q);
        const oracle::AttentionGradient g = gradient(b, h, q, k_, v_, scores, up);
        const Errors errors(spec_, g, scores, up);
        give_query(b, h, q, g, errors);
        for (std::size_t t = 0; t < g.p.size(); ++t) {
          add_to_key(b, h, q, g, errors, t, {d_k.data() + t * dim_, dim_},
                     {d_v.data() + t * dim_v_, dim_v_});
        }
        add_to_rest(b, h, q, g, errors);
      }
    }
    for (std::size_t t = 0; t < all_keys; ++t) {
      give_key(b, view_.key_row(b, kv_head, static_cast<std::int64_t>(t)), &d_k[t * dim_],
               &d_v[t * dim_v_]);
    }
  }

  void add_to_key(std::int64_t b, std::int64_t h, std::int64_t q,
                  const oracle::AttentionGradient& g, const Errors& errors, std::size_t t,
                  std::span<Total> d_k, std::span<Total> d_v) const {
    const std::int64_t row = view_.query_row(b, h, q);
    for (std::size_t j = 0; j < dim_; ++j) {
      const double x = call_.in().get(element(row, j, dim_));
      d_k[j].add(g.d_score[t], errors.d_score(t), x);
    }
    for (std::size_t j = 0; j < dim_v_; ++j) {
      const double x = call_[array::d_o].get(element(row, j, dim_v_));
      d_v[j].add(g.p[t], errors.weight(t), x);
    }
  }

  // The gradients of mask and sinks.
  void add_to_rest(std::int64_t b, std::int64_t h, std::int64_t q,
                   const oracle::AttentionGradient& g, const Errors& errors) {
    if (!sinks_.empty()) {
      sinks_[static_cast<std::size_t>(h)].add(g.d_sink, errors.d_sink(*view_.sink(h)), 1);
    }
    for (std::size_t t = 0; t < g.p.size() && !mask_.empty(); ++t) {
      const std::int64_t at = view_.mask_index(call_[array::d_additive].tensor(), b, h, q,
                                               static_cast<std::int64_t>(t));
      mask_[static_cast<std::size_t>(at)].add(g.d_z[t], errors.d_z(t), 1);
    }
  }

  void give_query(std::int64_t b, std::int64_t h, std::int64_t q,
                  const oracle::AttentionGradient& g, const Errors& errors) const {
    const std::int64_t row = view_.query_row(b, h, q);
    for (std::size_t j = 0; j < dim_; ++j) {
      Total total;
      for (std::size_t t = 0; t < g.p.size(); ++t) {
        total.add(g.d_score[t], errors.d_score(t), k_[t * dim_ + j]);
      }
      give(array::y, element(row, j, dim_), total, static_cast<double>(g.p.size()));
    }
  }

  void give_key(std::int64_t b, std::int64_t row, const Total* d_k, const Total* d_v) const {
    const auto terms = static_cast<double>(queries_of(b) * view_.group());
    for (std::size_t j = 0; j < dim_; ++j) {
      give(array::d_k, element(row, j, dim_), d_k[j], terms);
    }
    for (std::size_t j = 0; j < dim_v_; ++j) {
      give(array::d_v, element(row, j, dim_v_), d_v[j], terms);
    }
  }

  // A sum of so many terms, whose rounding errors walk as far as the root of their number. What is
  // rounded may be as large as its own error.
  void give(array::Id id, std::int64_t at, const Total& total, double terms) const {
    const DType computed = compute_type(spec_.in), out = call_[id].tensor().dtype;
    double value = total.value;
    double error = total.error + epsilon(computed) * (ulps(spec_.op) + std::sqrt(terms)) *
                                     finite_size(total.size + total.error);
    const bool adds = spec_.accumulate && id != array::d_sinks && id != array::d_additive;
    if (adds) {
      value += call_[id].get(at);
      error += epsilon(computed) * (finite_size(call_[id].get(at)) + finite_size(value));
    }
    const double most = std::min(largest(out), largest(computed));
    const Expected expected{
        in_range(value, most + error),
        error + (finite_size(value) + error) * epsilon(out) * 0.51 + smallest(out) +
            smallest(computed),
        most,
        // Whether an infinity meets its opposite, or a 0, is a matter of rounding, too.
        total.open || std::isinf(total.value)};
    id == array::y ? sink_.out(at, expected) : sink_.gradient(id, at, expected);
  }

  static std::int64_t element(std::int64_t row, std::size_t j, std::size_t dim) {
    return row * static_cast<std::int64_t>(dim) + static_cast<std::int64_t>(j);
  }

  const Call& call_;
  const Case& spec_;
  const Sink& sink_;
  const AttentionView view_;
  const std::size_t dim_, dim_v_;
  oracle::Row k_, v_;  // of the kv head in hand
  std::vector<Total> mask_, sinks_;
};

}  // namespace

void expect_attention_backward(const Call& call, std::span<const std::int64_t> rows,
                               const Sink& sink) {
  const Case& c = call.spec();
  Expecting expecting(call, sink);
  if (static_cast<std::int64_t>(rows.size()) == c.rows()) return expecting.all();
  for (const std::int64_t r : rows) expecting.query(r);
  const std::int64_t last = c.shape[0] - 1;  // whose sequence is whole
  for (const std::int64_t t : std::set<std::int64_t>{0, c.keys / 2, c.keys - 1}) {
    if (c.keys > 0 && c.kv_heads > 0 && last >= 0) expecting.key(last, c.kv_heads - 1, t);
  }
}

}  // namespace onepass::cli
