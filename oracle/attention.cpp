#include "oracle/attention.hpp"

#include <cmath>
#include <limits>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::span<const double> row(std::span<const double> rows, std::size_t i, std::size_t dim) {
  return rows.subspan(i * dim, dim);
}

}  // namespace

ScoredKeys score(const Row& q, std::span<const double> k, const Scores& s) {
  const std::size_t dim = q.size();
  const std::size_t keys = k.size() / dim;
  ScoredKeys result{Row(keys, -kInf), Row(keys, 0.0), Row(keys, 0.0)};
  for (std::size_t t = 0; t < keys; ++t) {
    if (!s.keep.empty() && !s.keep[t]) continue;
    Row products(dim);
    for (std::size_t j = 0; j < dim; ++j) {
      products[j] = q[j] * row(k, t, dim)[j];
      result.size[t] += std::abs(products[j] * s.scale);
    }
    result.scaled[t] = sum(products) * s.scale;
    double z = result.scaled[t];
    if (s.softcap > 0) z = s.softcap * std::tanh(z / s.softcap);
    z -= s.slope * static_cast<double>(std::abs(static_cast<std::int64_t>(t) - s.own));
    result.z[t] = s.additive.empty() ? z : z + s.additive[t];
  }
  return result;
}

Attended attention(const Row& q, std::span<const double> k, std::span<const double> v,
                   const Scores& scores, std::optional<double> sink, std::size_t dim_v) {
  const ScoredKeys scored = score(q, k, scores);
  const std::size_t keys = scored.z.size();
  const std::size_t dim = dim_v == 0 ? q.size() : dim_v;
  Attended result{Row(dim, 0.0), -kInf, scored.z, scored.size};
  Row logits = result.z;
  if (sink) logits.push_back(*sink);
  result.lse = logsumexp(logits);
  if (std::isnan(result.lse) || result.lse == kInf) {
    result.o.assign(dim, std::numeric_limits<double>::quiet_NaN());
    return result;
  }
  const Row p = softmax(logits);
  for (std::size_t j = 0; j < dim; ++j) {
    Row products;
    for (std::size_t t = 0; t < keys; ++t) {
      // What is −inf is not there, whatever its value.
      if (result.z[t] != -kInf) products.push_back(p[t] * row(v, t, dim)[j]);
    }
    result.o[j] = sum(products);
  }
  return result;
}

}  // namespace oracle
