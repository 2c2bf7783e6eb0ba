// A query and a key: the weight and the gradients, by the formulas of docs/numerics.md.
#pragma once

#include "ops/attention/gpu/backward/rows.cuh"
#include "ops/attention/logit.hpp"

namespace onepass::ops::attention {

struct Pair {
  float weight = 0;   // exp(z − lse)
  float d_z = 0;      // the gradient of z
  float d_score = 0;  // the gradient of q·k
};

class QueryPairs {
 public:
  __device__ QueryPairs(const AttentionBackwardArgs& a, const Sequence& s, const Sight& sight,
                        std::int64_t b, int head, int query)
      : begin_(sight.begin(query)),
        end_(sight.end(query)),
        own_(sight.own(query)),
        row_(backward_row(a, b, head, s.q_first + query)),
        slope_(slope_of(a, b, head)),
        scale_(static_cast<float>(a.scale)),
        cap_(static_cast<float>(a.softcap)),
        masks_(a, s, b, head, query) {}

  // The keys that no causal, window or length mask hides.
  __device__ int begin() const { return begin_; }
  __device__ int end() const { return end_; }

  // `score` is q·k and `d_weight` do·v, which may be anything where the key is hidden.
  __device__ Pair at(int key, float score, float d_weight) const {
    if (key < begin_ || key >= end_ || masks_.hides(key)) return {};
    const float scaled = score * scale_;
    const float tanh = cap_ > 0 ? tanhf(scaled / cap_) : 0.F;
    const float distance = fabsf(static_cast<float>(key - own_));
    const float z = (cap_ > 0 ? cap_ * tanh : scaled) - slope_ * distance + masks_.added(key);
    if (z == minus_infinity<float>()) return {};
    const float weight = weight_of(z, row_);
    const float d_z = weight * (d_weight - row_.mean);
    return {weight, d_z, d_z * (1 - tanh * tanh) * scale_};
  }

 private:
  int begin_, end_, own_;
  BackwardRow row_;
  float slope_, scale_, cap_;
  QueryMasks masks_;
};

}  // namespace onepass::ops::attention
