#include "oracle/attention_backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double weight_of(double z, double lse) {
  if (z == -kInf) return 0;
  if (std::isnan(lse) || lse == kInf) return std::numeric_limits<double>::quiet_NaN();
  if (lse == -kInf || std::isnan(z)) return lse == -kInf ? 0 : z;
  return std::min(1.0, std::exp(z - lse));
}

// The derivative of softcap at a score that was scaled.
double cap_slope(double scaled, double softcap) {
  if (softcap <= 0) return 1;
  const double t = std::tanh(scaled / softcap);
  return 1 - t * t;
}

}  // namespace

AttentionGradient attention_backward(const Row& q, std::span<const double> k,
                                     std::span<const double> v, const Scores& scores,
                                     std::optional<double> sink, const Upstream& up) {
  const std::size_t dim = q.size(), dim_v = up.d_o.size();
  const ScoredKeys scored = score(q, k, scores);
  const std::size_t keys = scored.z.size();
  AttentionGradient g{.d_q = Row(dim, 0.0),
                      .p = Row(keys, 0.0),
                      .d_z = Row(keys, 0.0),
                      .d_score = Row(keys, 0.0),
                      .steep = Row(keys, 1.0),
                      .z = scored.z,
                      .size = scored.size,
                      .d_p = Row(keys, 0.0),
                      .d_p_size = Row(keys, 0.0)};
  for (std::size_t j = 0; j < dim_v; ++j) {
    g.d_mean += up.d_o[j] * up.o[j];
    g.d_mean_size += std::abs(up.d_o[j] * up.o[j]);
  }
  g.d_mean -= up.d_lse;
  for (std::size_t t = 0; t < keys; ++t) {
    if (scored.z[t] == -kInf) continue;
    g.p[t] = weight_of(scored.z[t], up.lse);
    for (std::size_t j = 0; j < dim_v; ++j) {
      const double product = up.d_o[j] * v[t * dim_v + j];
      g.d_p[t] += product;
      g.d_p_size[t] += std::abs(product);
    }
    g.d_z[t] = g.p[t] * (g.d_p[t] - g.d_mean);
    g.steep[t] = cap_slope(scored.scaled[t], scores.softcap);
    g.d_score[t] = g.d_z[t] * g.steep[t] * scores.scale;
    if (g.d_score[t] == 0) continue;
    for (std::size_t j = 0; j < dim; ++j) g.d_q[j] += g.d_score[t] * k[t * dim + j];
  }
  if (sink && *sink != -kInf) g.d_sink = -weight_of(*sink, up.lse) * g.d_mean;
  return g;
}

}  // namespace oracle
