// What one row of a call is to give, and how far rounding may take an implementation from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/ops/bounds.hpp"
#include "cli/ops/call.hpp"
#include "cli/ops/expect.hpp"
#include "cli/ops/rows.hpp"

namespace onepass::cli {

// A variant of the walk: its threads add their share of a row one element after the other.
bool adds_in_order(const Case& c);

// One row's view of a call, with the errors that its logits carry.
class RowBounds {
 public:
  RowBounds(const Call& call, std::int64_t r)
      : spec_(call.spec()), unit_(epsilon(compute_type(spec_.in))), transform_(call.transform(r)) {
    x_ = row_of(call, call[array::forward_x].present() ? array::forward_x : array::x, r);
    z_ = oracle::logits(x_, transform_);
    p_ = oracle::softmax(z_);
    lse_ = oracle::logsumexp(z_);
    m_ = -std::numeric_limits<double>::infinity();
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

  const oracle::Row& x() const { return x_; }
  const oracle::Row& z() const { return z_; }
  const oracle::Row& p() const { return p_; }
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
    Expected result = stored(value, error, to);
    result.most = std::min(result.most, largest(compute_type(spec_.in)));
    return result;
  }

  // The same of a loss, which is computed in double whatever x is.
  Expected stored(double value, double error, DType to) const {
    const double to_output = finite_size(value) * epsilon(to) * 0.51;
    const double floor = smallest(to) + smallest(compute_type(spec_.in));
    return {value, error + to_output + floor, largest(to)};
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
  oracle::Row x_, z_, p_;
  double lse_ = 0, m_ = 0, state_error_ = 0;
};

inline Expected lse_bound(const RowBounds& row) {
  return {row.lse(), row.lse_error() + smallest(DType::f32)};
}

}  // namespace onepass::cli
