#include "oracle/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool any_nan(const Row& z) {
  return std::any_of(z.begin(), z.end(), [](double v) { return std::isnan(v); });
}

double maximum(const Row& z) { return *std::max_element(z.begin(), z.end()); }

bool nothing_left(const Row& z) {
  return std::all_of(z.begin(), z.end(), [](double v) { return v == -kInf; });
}

Row exponentials(const Row& z, double shift) {
  Row e(z.size());
  std::transform(z.begin(), z.end(), e.begin(), [shift](double v) { return std::exp(v - shift); });
  return e;
}

// dz/dx at one x.
double slope(double x, const Transform& t) {
  const double factor = t.scale / t.temperature;
  if (t.softcap == 0) return factor;
  const double h = std::tanh(x * t.scale / t.softcap);
  return factor * (1 - h * h);
}

// A sum that keeps what its additions lose.
class Sum {
 public:
  void add(double v) {
    const double next = total_ + v;
    // With an inf or NaN the correction would be NaN, and would not be one.
    if (std::isfinite(next)) {
      lost_ += std::abs(total_) >= std::abs(v) ? (total_ - next) + v : (v - next) + total_;
    }
    total_ = next;
  }
  double value() const { return std::isfinite(total_) ? total_ + lost_ : total_; }

 private:
  double total_ = 0;
  double lost_ = 0;
};

bool kept(const Transform& t, std::size_t c) { return t.keep.empty() || t.keep[c]; }

}  // namespace

double sum(const Row& values) {
  Sum sum;
  for (const double v : values) sum.add(v);
  return sum.value();
}

Row logits(const Row& x, const Transform& t) {
  Row z(x.size());
  for (std::size_t c = 0; c < x.size(); ++c) {
    double v = x[c] * t.scale;
    if (t.softcap > 0) v = t.softcap * std::tanh(v / t.softcap);
    v /= t.temperature;
    if (!t.additive.empty()) v += t.additive[c];
    z[c] = kept(t, c) ? v : -kInf;
  }
  return z;
}

bool causal_keeps(std::int64_t q, std::int64_t c, std::int64_t queries, std::int64_t keys) {
  return c - (keys - queries) <= q;
}

bool window_keeps(std::int64_t q, std::int64_t c, std::int64_t queries, std::int64_t keys,
                  std::int64_t left, std::int64_t right) {
  const std::int64_t distance = c - (q + (keys - queries));
  return (left < 0 || distance >= -left) && (right < 0 || distance <= right);
}

double logsumexp(const Row& z) {
  if (any_nan(z)) return kNan;
  if (z.empty() || nothing_left(z)) return -kInf;
  const double m = maximum(z);
  return m == kInf ? kInf : m + std::log(sum(exponentials(z, m)));
}

Row softmax(const Row& z) {
  if (nothing_left(z)) return Row(z.size(), 0.0);
  if (any_nan(z) || maximum(z) == kInf) return Row(z.size(), kNan);
  Row y = exponentials(z, maximum(z));
  const double d = sum(y);
  for (double& v : y) v /= d;
  return y;
}

Row log_softmax(const Row& z) {
  if (nothing_left(z)) return Row(z.size(), -kInf);
  if (any_nan(z) || maximum(z) == kInf) return Row(z.size(), kNan);
  const double m = maximum(z);
  const double log_d = std::log(sum(exponentials(z, m)));
  Row y(z.size());
  std::transform(z.begin(), z.end(), y.begin(), [=](double v) { return (v - m) - log_d; });
  return y;
}

Row softmax_backward(const Row& y, const Row& dy, const Row& x, const Transform& t) {
  Row products(y.size());
  for (std::size_t c = 0; c < y.size(); ++c) products[c] = kept(t, c) ? y[c] * dy[c] : 0;
  const double total = sum(products);
  Row dx(y.size());
  for (std::size_t c = 0; c < y.size(); ++c) {
    dx[c] = kept(t, c) ? (dy[c] - total) * y[c] * slope(x.empty() ? 0 : x[c], t) : 0;
  }
  return dx;
}

Row log_softmax_backward(const Row& y, const Row& dy, const Row& x, const Transform& t) {
  Row visible(y.size());
  for (std::size_t c = 0; c < y.size(); ++c) visible[c] = kept(t, c) ? dy[c] : 0;
  const double total = sum(visible);
  Row dx(y.size());
  for (std::size_t c = 0; c < y.size(); ++c) {
    dx[c] = kept(t, c) ? (dy[c] - std::exp(y[c]) * total) * slope(x.empty() ? 0 : x[c], t) : 0;
  }
  return dx;
}

Row labels(const Row& z, const Loss& loss) {
  const auto live = std::count_if(z.begin(), z.end(), [](double v) { return v != -kInf; });
  Row all(z.size());
  for (std::size_t c = 0; c < z.size(); ++c) {
    const double said = loss.probabilities.empty()
                            ? (static_cast<std::int64_t>(c) == loss.target ? 1 : 0)
                            : loss.probabilities[c];
    const double smooth = z[c] == -kInf ? 0 : loss.label_smoothing / static_cast<double>(live);
    all[c] =
        ((1 - loss.label_smoothing) * said + smooth) * (loss.weight.empty() ? 1 : loss.weight[c]);
  }
  return all;
}

double cross_entropy(const Row& z, const Loss& loss) {
  const Row log_p = log_softmax(z);
  if (any_nan(log_p)) return kNan;
  const Row label = labels(z, loss);
  Row terms;
  for (std::size_t c = 0; c < z.size(); ++c) {
    if (label[c] != 0) terms.push_back(-label[c] * log_p[c]);
  }
  double value = sum(terms);
  if (nothing_left(z) && loss.label_smoothing > 0) value = kInf;  // spread over nothing
  if (loss.z_loss == 0) return value;
  const double lse = logsumexp(z);
  return value + loss.z_loss * lse * lse;
}

Row cross_entropy_backward(const Row& x, const Transform& t, const Loss& loss, double dloss) {
  const Row z = logits(x, t);
  if (nothing_left(z)) return Row(z.size(), 0.0);
  const Row p = softmax(z);
  const double lse = logsumexp(z);
  const Row label = labels(z, loss);
  const double total = sum(label);
  Row dx(x.size());
  for (std::size_t c = 0; c < x.size(); ++c) {
    if (z[c] == -kInf) continue;
    const double dz = p[c] * (total + 2 * loss.z_loss * lse) - label[c];
    dx[c] = dz * dloss * slope(x[c], t);
  }
  return dx;
}

std::vector<std::int64_t> largest(const Row& z, std::int64_t k) {
  std::vector<std::int64_t> order(z.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return z[static_cast<std::size_t>(a)] > z[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

std::int64_t rank(const Row& z, std::int64_t index) {
  const auto order = largest(z, static_cast<std::int64_t>(z.size()));
  return std::find(order.begin(), order.end(), index) - order.begin();
}

Row filtered(const Row& z, std::int64_t top_k, double top_p, double min_p) {
  const Row p = softmax(z);
  const auto size = static_cast<std::int64_t>(z.size());
  const auto order = largest(z, top_k == 0 ? size : std::min(top_k, size));
  Row among;
  for (const std::int64_t i : order) among.push_back(p[static_cast<std::size_t>(i)]);
  const double total = sum(among);
  Row left(z.size(), 0.0);
  Sum taken;
  for (const std::int64_t i : order) {
    const double mine = p[static_cast<std::size_t>(i)];
    if (top_p < 1 && i != order.front() && taken.value() >= top_p * total) break;
    taken.add(mine);
    if (mine >= min_p * among[0]) left[static_cast<std::size_t>(i)] = mine;
  }
  const double kept = sum(left);
  for (double& value : left) value /= kept;
  return left;
}

}  // namespace oracle
