#include "cli/ops/expect.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/ops/bounds.hpp"
#include "cli/ops/expect_attention.hpp"
#include "dispatch/variant.hpp"

namespace onepass::cli {
namespace {

using oracle::Row;

constexpr double kInf = std::numeric_limits<double>::infinity();

// A variant of the walk: its threads add their share of a row one element after the other.
bool adds_in_order(const Case& c) {
  const auto all = variants(c.op);
  return std::any_of(all.begin(), all.end(), [&c](const Variant& v) {
    return v.name == c.variant && v.device == Device::cuda && v.role != Role::ship;
  });
}

// One row's view of a call, with the errors that its logits carry.
class RowBounds {
 public:
  RowBounds(const Call& call, std::int64_t r)
      : spec_(call.spec()), unit_(epsilon(compute_type(spec_.in))), transform_(call.transform(r)) {
    const GuardedArray& source = call.x().present() ? call.x() : call.in();
    for (std::int64_t c = 0; c < spec_.cols(); ++c) x_.push_back(source.get(call.index(r, c)));
    z_ = oracle::logits(x_, transform_);
    p_ = oracle::softmax(z_);
    lse_ = oracle::logsumexp(z_);
    m_ = -kInf;
    for (const double z : z_) m_ = std::max(m_, z);
    for (std::size_t c = 0; c < z_.size(); ++c) {
      const double e = p_[c] * logit_error(c);
      state_error_ += std::isfinite(e) ? e : 0;
    }
    state_error_ += ulps(spec_.op) * unit_;
    // Each addition rounds by half an ulp at most; the smallest of their blocks has 256 threads,
    // whose shares one thread of block_serial adds up.
    if (adds_in_order(spec_)) {
      const auto cols = static_cast<double>(z_.size());
      const double shares = spec_.variant == "block_serial" ? std::min(cols, 256.0) : 0;
      state_error_ += unit_ * (cols / 256 + shares) / 2;
    }
  }

  const Row& x() const { return x_; }
  const Row& z() const { return z_; }
  const Row& p() const { return p_; }
  const oracle::Transform& transform() const { return transform_; }
  double lse() const { return lse_; }
  double unit() const { return unit_; }

  // The error of z[c] and of z[c] − m, in the computing type. Where 2^x is what the machine
  // has, the difference is rounded, and its product with log2 e, which is itself off by a
  // ninth of a unit.
  double logit_error(std::size_t c) const {
    double size = finite_size(z_[c] - m_);
    if (transformed()) size += 4 * (finite_size(z_[c]) + finite_size(m_) + capped_size());
    if (!transform_.additive.empty()) size += finite_size(transform_.additive[c]);
    return unit_ * 1.125 * size;
  }

  // The relative error of a weight: its own logit's and the sum's.
  double weight_error(std::size_t c) const { return logit_error(c) + state_error_; }

  double lse_error() const {
    return state_error_ + unit_ * ulps(spec_.op) * (finite_size(lse_) + finite_size(m_));
  }

  Expected rounded(double value, double error) const { return rounded(value, error, spec_.out); }

  Expected rounded(double value, double error, DType to) const {
    return stored(in_range(value, largest(compute_type(spec_.in))), error, to);
  }

  // The same of a loss, which is computed in double whatever x is.
  Expected stored(double value, double error, DType to) const {
    value = in_range(value, largest(to));
    const double to_output = finite_size(value) * epsilon(to) * 0.51;
    const double floor = smallest(to) + smallest(compute_type(spec_.in));
    return {value, error + to_output + floor};
  }

 private:
  bool transformed() const {
    return transform_.scale != 1 || transform_.temperature != 1 || transform_.softcap != 0 ||
           !transform_.additive.empty();
  }
  // tanh is accurate to a few ulps of itself, which the cap then multiplies.
  double capped_size() const { return transform_.softcap / transform_.temperature; }

  const Case& spec_;
  double unit_;
  oracle::Transform transform_;
  Row x_, z_, p_;
  double lse_ = 0, m_ = 0, state_error_ = 0;
};

Expected lse_bound(const RowBounds& row) {
  return {row.lse(), row.lse_error() + smallest(DType::f32)};
}

void expect_forward(const Call& call, const RowBounds& row, std::int64_t r, const Sink& sink) {
  const Case& spec = call.spec();
  if (spec.op == Op::logsumexp) {
    return sink.out(r, row.rounded(row.lse(), row.lse_error()));
  }
  const bool log = spec.op == Op::log_softmax;
  const Row y = log ? oracle::log_softmax(row.z()) : row.p();
  for (std::int64_t c = 0; c < spec.cols(); ++c) {
    const auto at = static_cast<std::size_t>(c);
    const double error =
        log ? row.weight_error(at) + ulps(spec.op) * row.unit() * finite_size(y[at])
            : row.weight_error(at) * finite_size(y[at]);
    sink.out(call.index(r, c), row.rounded(y[at], error));
  }
}

void expect_backward(const Call& call, const RowBounds& row, std::int64_t r, const Sink& sink) {
  const Case& spec = call.spec();
  const bool log = spec.op == Op::log_softmax_backward;
  Row y;
  Row dy;
  for (std::int64_t c = 0; c < spec.cols(); ++c) {
    y.push_back(call.in().get(call.index(r, c)));
    dy.push_back(call.dy().get(call.index(r, c)));
  }
  const oracle::Transform& t = row.transform();
  const Row dx = log ? oracle::log_softmax_backward(y, dy, row.x(), t)
                     : oracle::softmax_backward(y, dy, row.x(), t);
  double total = 0;  // Σ of sizes: what the error of the sum is relative to
  for (std::size_t c = 0; c < y.size(); ++c) {
    total += finite_size(log ? dy[c] : y[c] * dy[c]);
  }
  const double slope = std::abs(t.scale / t.temperature);
  const double unit = row.unit() * ulps(spec.op);
  for (std::int64_t c = 0; c < spec.cols(); ++c) {
    const auto at = static_cast<std::size_t>(c);
    const double weight = log ? std::exp(y[at]) * (1 + finite_size(y[at])) : std::abs(y[at]);
    const double size =
        log ? finite_size(dy[at]) + weight * total : weight * (finite_size(dy[at]) + total);
    const double error = unit * slope * size * (spec.softcap > 0 ? 4 : 1);
    sink.out(call.index(r, c), row.rounded(dx[at], std::isnan(error) ? 0 : error));
  }
}

oracle::Loss loss_of(const Call& call, std::int64_t r) {
  const Case& spec = call.spec();
  oracle::Loss loss{.label_smoothing = spec.smoothing, .z_loss = spec.z_loss};
  for (std::int64_t c = 0; c < call.weight().size(); ++c) {
    loss.weight.push_back(call.weight().get(c));
  }
  if (!spec.probabilities) {
    loss.target = static_cast<std::int64_t>(call.target().get(r));
    return loss;
  }
  for (std::int64_t c = 0; c < spec.cols(); ++c) {
    loss.probabilities.push_back(call.target().get(call.index(r, c)));
  }
  return loss;
}

bool is_ignored(const Call& call, const oracle::Loss& loss) {
  return !call.spec().probabilities && loss.target == kIgnore;
}

// What a mean divides by; 1 where that is 0.
double counted(const Call& call) {
  if (call.spec().probabilities)
    return static_cast<double>(std::max<std::int64_t>(call.spec().rows(), 1));
  double count = 0;
  for (std::int64_t r = 0; r < call.target().size(); ++r) {
    const auto target = static_cast<std::int64_t>(call.target().get(r));
    if (target != kIgnore) count += call.weight().present() ? call.weight().get(target) : 1;
  }
  return count == 0 ? 1 : count;
}

// Whether a row's classes each have their part of its loss.
bool is_weighted(const Case& spec) { return spec.weights || spec.probabilities; }

// Sums over what all classes have of the labels.
struct LabelSums {
  double size = 0;         // Σ |label|
  double logit_error = 0;  // of Σ label · z
  double terms = 0;        // Σ |label · (z − lse)|, each of which is rounded
};

LabelSums sums_of(const RowBounds& row, const oracle::Loss& loss) {
  const Row label = oracle::labels(row.z(), loss);
  LabelSums sums;
  for (std::size_t c = 0; c < label.size(); ++c) {
    const double size = std::abs(label[c]);
    sums.size += size;
    sums.logit_error += size * row.logit_error(c);
    sums.terms += size * finite_size(row.z()[c] - row.lse());
  }
  return sums;
}

// One row's loss, before any reduction.
Expected row_loss(const Call& call, const RowBounds& row, std::int64_t r) {
  const oracle::Loss loss = loss_of(call, r);
  if (is_ignored(call, loss)) return {0, 0};
  const double value = oracle::cross_entropy(row.z(), loss);
  const double unit = row.unit() * ulps(call.spec().op);
  const double lse_error = row.lse_error();
  if (is_weighted(call.spec())) {
    const LabelSums sums = sums_of(row, loss);
    const double by_lse = sums.size + 2 * loss.z_loss * finite_size(row.lse());
    return {value,
            sums.logit_error + lse_error * by_lse + unit * (finite_size(value) + sums.terms)};
  }
  double logit_error = row.logit_error(static_cast<std::size_t>(loss.target));
  double spread = 0;
  for (std::size_t c = 0; loss.label_smoothing > 0 && c < row.z().size(); ++c) {
    spread = std::max(spread, finite_size(row.z()[c]));
    logit_error = std::max(logit_error, row.logit_error(c));
  }
  const double error = logit_error + lse_error * (1 + 2 * loss.z_loss * finite_size(row.lse())) +
                       unit * (finite_size(value) + spread);
  return {value, error};
}

void expect_loss_backward(const Call& call, const RowBounds& row, std::int64_t r,
                          const Sink& sink) {
  const Case& spec = call.spec();
  const oracle::Loss loss = loss_of(call, r);
  const bool reduced = spec.reduction != Reduction::none;
  double dloss = spec.loss ? 1 : call.dloss().get(reduced ? 0 : r);
  if (spec.reduction == Reduction::mean) dloss /= counted(call);
  const Row dx = is_ignored(call, loss)
                     ? Row(row.z().size(), 0.0)
                     : oracle::cross_entropy_backward(row.x(), row.transform(), loss, dloss);
  // A given lse was rounded, and a weight is exp(z − lse).
  const double given = spec.lse && !spec.loss ? row.unit() * finite_size(row.lse()) : 0;
  const double slope = std::abs(row.transform().scale / row.transform().temperature * dloss);
  const Row label = is_weighted(spec) ? oracle::labels(row.z(), loss) : Row();
  const double total = is_weighted(spec) ? sums_of(row, loss).size : 1;
  for (std::int64_t c = 0; c < spec.cols(); ++c) {
    const auto at = static_cast<std::size_t>(c);
    const double weight =
        finite_size(row.p()[at]) * (total + 2 * loss.z_loss * finite_size(row.lse()));
    const double other = is_weighted(spec)  ? std::abs(label[at])
                         : c == loss.target ? 1
                                            : loss.label_smoothing;
    const double unit = row.unit() * ulps(spec.op);
    // A weight below the smallest normal number may be gone, and is then multiplied.
    const double lost =
        smallest(compute_type(spec.in)) * (1 + 2 * loss.z_loss * finite_size(row.lse()));
    const double error =
        slope * (weight * (row.weight_error(at) + given + unit + row.logit_error(at)) +
                 unit * other + lost) +
        unit * 4 * finite_size(dx[at]);
    sink.out(call.index(r, c), row.rounded(dx[at], std::isnan(error) ? 0 : error));
  }
}

}  // namespace

double ulps(Op op) {
  switch (op) {
    case Op::log_softmax:
    case Op::logsumexp: return 4;
    case Op::softmax_backward:
    case Op::cross_entropy: return 6;
    case Op::softmax:
    case Op::log_softmax_backward:
    case Op::cross_entropy_backward:
    case Op::topk:
    case Op::sample:
    case Op::gate:
    case Op::attention: return 8;
  }
  return 0;
}

void expect_row(const Call& call, std::int64_t r, const Sink& sink) {
  if (call.spec().op == Op::attention) return expect_attention(call, {&r, 1}, sink);
  const RowBounds row(call, r);
  const Case& spec = call.spec();
  if (writes_lse(spec)) sink.lse(r, lse_bound(row));
  switch (spec.op) {
    case Op::softmax:
    case Op::log_softmax:
    case Op::logsumexp: return expect_forward(call, row, r, sink);
    case Op::softmax_backward:
    case Op::log_softmax_backward: return expect_backward(call, row, r, sink);
    case Op::cross_entropy_backward: return expect_loss_backward(call, row, r, sink);
    case Op::cross_entropy: {
      const Expected loss = row_loss(call, row, r);
      return sink.out(r, row.stored(loss.value, loss.tolerance, spec.out));
    }
    case Op::topk:
    case Op::sample:
    case Op::gate: return;       // any of equal answers is right: cli/ops/check_select.cpp
    case Op::attention: return;  // cli/ops/expect_attention.cpp
  }
}

namespace {

// All rows' losses as one. Rows are summed as they are; only the total is rounded.
Expected expect_reduced(const Call& call, DType to) {
  const Case& spec = call.spec();
  const bool mean = spec.reduction == Reduction::mean;
  const double count = mean ? counted(call) : 1;
  Expected total{0, smallest(to) + smallest(compute_type(spec.in))};
  for (std::int64_t r = 0; r < spec.rows(); ++r) {
    const Expected loss = row_loss(call, RowBounds(call, r), r);
    total.value += loss.value;
    total.tolerance += loss.tolerance / count;
  }
  total.value /= count;
  return {in_range(total.value, largest(to)),
          total.tolerance + finite_size(total.value) * epsilon(to)};
}

}  // namespace

Case what_is_expected(Case c) {
  c.isa.clear();
  if (!adds_in_order(c)) c.variant.clear();
  return c;
}

Expectation expect(const Call& call) {
  const Case& spec = call.spec();
  const bool reduced = spec.reduction != Reduction::none;
  Expectation e;
  if (!chooses(spec.op)) e.out.resize(static_cast<std::size_t>(call.out().size()));
  if (writes_lse(spec)) e.lse.resize(static_cast<std::size_t>(call.lse().size()));
  const auto into = [](std::vector<Expected>& list) {
    return [&list](std::int64_t i, Expected x) { list[static_cast<std::size_t>(i)] = x; };
  };
  if (spec.op == Op::cross_entropy && reduced) {
    for (std::int64_t r = 0; writes_lse(spec) && r < spec.rows(); ++r) {
      e.lse[static_cast<std::size_t>(r)] = lse_bound(RowBounds(call, r));
    }
    e.out[0] = expect_reduced(call, spec.out);
    return e;
  }
  const Sink sink{.out = into(e.out), .lse = into(e.lse)};
  if (spec.op == Op::attention) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(spec.rows()));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    expect_attention(call, rows, sink);
    return e;
  }
  for (std::int64_t r = 0; r < spec.rows(); ++r) expect_row(call, r, sink);
  if (!spec.loss) return e;
  const DType to = call.loss().tensor().dtype;
  if (reduced) {
    e.loss.push_back(expect_reduced(call, to));
    return e;
  }
  for (std::int64_t r = 0; r < spec.rows(); ++r) {
    const RowBounds row(call, r);
    const Expected loss = row_loss(call, row, r);
    e.loss.push_back(row.stored(loss.value, loss.tolerance, to));
  }
  return e;
}

double distance(double got, const Expected& expected) {
  if (std::isnan(expected.value)) return std::isnan(got) ? 0 : kInf;
  if (std::isinf(expected.value)) return got == expected.value ? 0 : kInf;
  const double d = std::abs(got - expected.value);
  if (d == 0) return 0;
  return std::isfinite(d) ? d / expected.tolerance : kInf;
}

}  // namespace onepass::cli
