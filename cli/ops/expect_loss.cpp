// What cross-entropy and its gradient must give.

#include "cli/ops/row_bounds.hpp"

namespace onepass::cli {
namespace {

using oracle::Row;

oracle::Loss loss_of(const Call& call, std::int64_t r) {
  const Case& spec = call.spec();
  oracle::Loss loss{.label_smoothing = spec.smoothing, .z_loss = spec.z_loss};
  for (std::int64_t c = 0; c < call[array::weight].size(); ++c) {
    loss.weight.push_back(call[array::weight].get(c));
  }
  if (!spec.probabilities) {
    loss.target = static_cast<std::int64_t>(call[array::target].get(r));
    return loss;
  }
  for (std::int64_t c = 0; c < spec.cols(); ++c) {
    loss.probabilities.push_back(call[array::target].get(call.index(r, c)));
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
  for (std::int64_t r = 0; r < call[array::target].size(); ++r) {
    const auto target = static_cast<std::int64_t>(call[array::target].get(r));
    if (target != kIgnore)
      count += call[array::weight].present() ? call[array::weight].get(target) : 1;
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

// `count`: what a mean divides by.
void expect_gradient(const Call& call, const RowBounds& row, std::int64_t r, double count,
                     const Sink& sink) {
  const Case& spec = call.spec();
  const oracle::Loss loss = loss_of(call, r);
  const bool reduced = spec.reduction != Reduction::none;
  double dloss = spec.loss ? 1 : call[array::dloss].get(reduced ? 0 : r);
  if (spec.reduction == Reduction::mean) dloss /= count;
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
  return {total.value, total.tolerance + finite_size(total.value) * epsilon(to), largest(to)};
}

}  // namespace

void expect_loss(const Call& call, std::span<const std::int64_t> rows, const Sink& sink) {
  const Case& spec = call.spec();
  const bool reduced = spec.reduction != Reduction::none;
  const bool backward = spec.op == Op::cross_entropy_backward;
  const std::function<void(std::int64_t, Expected)>& losses = backward ? sink.loss : sink.out;
  const bool wants_loss = losses && (!backward || spec.loss);
  const DType to = backward && spec.loss ? call[array::loss].tensor().dtype : spec.out;
  const double count = backward && spec.reduction == Reduction::mean ? counted(call) : 1;
  for (const std::int64_t r : rows) {
    const RowBounds row(call, r);
    if (writes_lse(spec)) sink.lse(r, lse_bound(row));
    if (backward) expect_gradient(call, row, r, count, sink);
    if (!wants_loss || reduced) continue;
    const Expected loss = row_loss(call, row, r);
    losses(r, row.stored(loss.value, loss.tolerance, to));
  }
  if (wants_loss && reduced) losses(0, expect_reduced(call, to));
}

}  // namespace onepass::cli
