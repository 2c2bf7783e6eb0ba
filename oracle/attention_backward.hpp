// The reference of attention's gradients: one query at a time, float64.
#pragma once

#include "oracle/attention.hpp"

namespace oracle {

// What the forward gave for a query, and the gradients that reach it.
struct Upstream {
  Row o;
  double lse = 0;
  Row d_o;
  double d_lse = 0;
};

// Key t's shares of the query are d_k[t] = d_score[t] · q and d_v[t] = p[t] · d_o.
struct AttentionGradient {
  Row d_q;
  Row p;        // the weight of each key
  Row d_z;      // the gradient of each logit, hence of the additive mask
  Row d_score;  // of q·k
  Row steep;    // softcap's derivative at each key
  double d_sink = 0;
  double d_mean = 0;  // Σ d_o · o − d_lse
  Row z, size;        // as of Attended
  Row d_p;            // d_o · v of each key
  Row d_p_size;       // Σ |d_o · v|, what the rounding of d_p is relative to
  double d_mean_size = 0;
};

// A key whose z is −inf takes no part: its entries are 0. An lse of NaN or +inf makes all others
// NaN. No weight is above 1, however lse was rounded. A factor of 0 adds nothing, whatever it
// multiplies.
AttentionGradient attention_backward(const Row& q, std::span<const double> k,
                                     std::span<const double> v, const Scores& scores,
                                     std::optional<double> sink, const Upstream& up);

}  // namespace oracle
