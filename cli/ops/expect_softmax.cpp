// What softmax, log-softmax, logsumexp and their gradients must give.

#include "cli/ops/row_bounds.hpp"

namespace onepass::cli {
namespace {

using oracle::Row;

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
  const Row y = row_of(call, array::x, r);
  const Row dy = row_of(call, array::dy, r);
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

}  // namespace

void expect_softmax(const Call& call, std::span<const std::int64_t> rows, const Sink& sink) {
  const Op op = call.spec().op;
  const bool backward = op == Op::softmax_backward || op == Op::log_softmax_backward;
  for (const std::int64_t r : rows) {
    const RowBounds row(call, r);
    if (writes_lse(call.spec())) sink.lse(r, lse_bound(row));
    backward ? expect_backward(call, row, r, sink) : expect_forward(call, row, r, sink);
  }
}

}  // namespace onepass::cli
