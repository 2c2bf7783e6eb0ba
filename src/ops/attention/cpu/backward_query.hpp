// One query of attention's backward, one key at a time, in plain loops: the textbook, and whatever
// is too rare to be quick.
#pragma once

#include <cmath>
#include <type_traits>

#include "ops/attention/backward_args.hpp"
#include "ops/attention/logit.hpp"

namespace onepass {

inline constexpr int kMostBackwardDim = 512;

// What z is exponentiated against, given the lse: +inf for a query that sees nothing, whose weights
// are then 0, and NaN for an infinite sum, whose weights are.
template <class T>
inline T exponent_of(T lse) {
  if (lse == minus_infinity<T>()) return -lse;
  return lse == -minus_infinity<T>() ? lse - lse : lse;
}

template <class Stored>
class BackwardQuery {
 public:
  using T = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

  BackwardQuery(const AttentionBackwardArgs& args, const Sequence& s, std::int64_t b,
                std::int64_t head, std::int64_t query)
      : a_(args),
        s_(s),
        b_(b),
        kv_head_(head / (args.heads / args.kv_heads)),
        own_(own_key(s, query)),
        live_(live_keys(args, s, query)),
        masks_(args, s, b, head, query),
        slope_(slope_of<T>(args, b, head)) {
    const std::int64_t token = s.q_first + query;
    read_row(a_.q, a_.q.offset(b, head, token), a_.dim, q_);
    read_row(a_.d_o, a_.d_o.offset(b, head, token), a_.dim_v, d_o_);
    read_row(a_.o, a_.o.offset(b, head, token), a_.dim_v, o_);
    lse_ = exponent_of(read_like<T>(a_.lse.data, a_.lse.dtype, a_.lse.offset(b, head, token)));
    for (int j = 0; j < a_.dim_v; ++j) mean_ += d_o_[j] * o_[j];
    if (!a_.d_lse) return;
    mean_ -= read_like<T>(a_.d_lse.data, a_.d_lse.dtype, a_.d_lse.offset(b, head, token));
  }

  const Keys& live() const { return live_; }
  const T* q() const { return q_; }
  const T* d_o() const { return d_o_; }
  const Stored* k(std::int64_t t) const { return row(a_.k, t); }

  struct Pair {
    T weight = 0;   // exp(z − lse)
    T d_z = 0;      // the gradient of z
    T d_score = 0;  // the gradient of q·k
  };

  // The query and a key that is live; zeros if a mask hides it.
  Pair at(std::int64_t t) const {
    if (masks_.hides(t)) return {};
    const auto cap = static_cast<T>(a_.softcap), scale = static_cast<T>(a_.scale);
    const T scaled = dot(q_, k(t), a_.dim) * scale;
    const auto distance = static_cast<T>(std::abs(t - own_));
    const T z = capped(scaled, cap) - slope_ * distance + masks_.template added<T>(t);
    if (z == minus_infinity<T>()) return {};
    const T weight = weight_of(z);
    const T d_z = weight * (dot(d_o_, row(a_.v, t), a_.dim_v) - mean_);
    const T tanh = cap > 0 ? std::tanh(scaled / cap) : T(0);
    return {weight, d_z, d_z * (1 - tanh * tanh) * scale};
  }

  // Of the sink, which has no value.
  T d_sink(T sink) const { return sink == minus_infinity<T>() ? 0 : -weight_of(sink) * mean_; }

 private:
  // No weight is above 1, but z and lse are rounded.
  T weight_of(T z) const {
    const T x = z - lse_;
    return exponential(x > 0 ? T(0) : x);
  }

  const Stored* row(const Heads& operand, std::int64_t t) const {
    return static_cast<const Stored*>(operand.data) + key_offset(a_, s_, operand, b_, kv_head_, t);
  }

  static void read_row(const Heads& operand, std::int64_t at, int dim, T* out) {
    for (int j = 0; j < dim; ++j) out[j] = read_like<T>(operand.data, operand.dtype, at + j);
  }

  static T dot(const T* a, const Stored* b, int dim) {
    T sum = 0;
    for (int j = 0; j < dim; ++j) sum += a[j] * load_as<T>(b[j]);
    return sum;
  }

  const AttentionBackwardArgs& a_;
  const Sequence& s_;
  const std::int64_t b_, kv_head_, own_;
  const Keys live_;
  const QueryMasks masks_;
  const T slope_;
  T lse_ = 0;
  T mean_ = 0;  // Σ do · o − dlse
  T q_[kMostBackwardDim], d_o_[kMostBackwardDim], o_[kMostBackwardDim];
};

// An element of a gradient, which may be added to what is there.
template <class T>
inline void write_gradient(const Heads& gradient, std::int64_t at, bool accumulate, T value) {
  if (accumulate) value += read_like<T>(gradient.data, gradient.dtype, at);
  write_like(gradient.data, gradient.dtype, at, value);
}

}  // namespace onepass
