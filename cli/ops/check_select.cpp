#include "cli/ops/check_select.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/ops/bounds.hpp"
#include "cli/ops/row_bounds.hpp"

namespace onepass::cli {
namespace {

using oracle::Row;

// One row's answer beside the oracle's.
class RowCheck {
 public:
  RowCheck(const Call& call, std::int64_t row) : call_(call), spec_(call.spec()), row_(row) {
    const Row x = row_of(call, array::x, row);
    oracle::Transform transform = call.transform(row);
    if (spec_.op == Op::sample && transform.temperature == 0) transform.temperature = 1;
    if (spec_.op == Op::gate) transform = {};
    z_ = oracle::logits(x, transform);
    exact_ = spec_.scale == 1 && !spec_.scale_rows && spec_.temperature == 1 &&
             !spec_.temperature_rows && spec_.softcap == 0 && !spec_.additive;
    for (const double z : z_) size_ = std::max(size_, std::isfinite(z) ? std::abs(z) : 0);
    nan_ = std::any_of(z_.begin(), z_.end(), [](double z) { return std::isnan(z); });
    lse_ = oracle::logsumexp(z_);
    p_ = oracle::softmax(z_);
    logs_ = oracle::log_softmax(z_);
  }

  std::string run() const {
    switch (spec_.op) {
      case Op::sample: return token();
      case Op::gate: return experts();
      default: return topk();
    }
  }

 private:
  double unit() const { return spec_.in == DType::f64 ? 0x1p-52 : 0x1p-23; }

  // Two logits that rounding may have put in either order, or, where they are as small as numbers
  // get, made the same.
  bool near(double a, double b) const {
    if (exact_ || a == b) return a == b;
    const double step = spec_.in == DType::f64 ? 0 : 0x1p-149;
    return std::abs(a - b) <= 16 * (step + unit() * (std::abs(a) + std::abs(b) + spec_.softcap));
  }

  // Element i of an output is what was expected.
  bool close(const GuardedArray& output, std::int64_t i, double expected) const {
    const double got = output.get(i);
    const double rounding = std::max(epsilon(output.tensor().dtype) / 2, 32 * unit());
    expected = in_range(expected,
                        std::min(largest(output.tensor().dtype), largest(compute_type(spec_.in))));
    if (std::isnan(expected) || std::isinf(expected)) {
      return std::isnan(expected) ? std::isnan(got) : got == expected;
    }
    // An error of z is one of its weight, and of the lse.
    return std::abs(got - expected) <=
           (rounding + 16 * unit() * (1 + size_)) * (1 + std::abs(expected)) + 0x1p-24;
  }

  double z(std::int64_t i) const { return z_[static_cast<std::size_t>(i)]; }

  std::string topk() const {
    const std::int64_t k = spec_.k;
    std::vector<std::int64_t> got;
    for (std::int64_t i = 0; i < k; ++i) {
      got.push_back(static_cast<std::int64_t>(call_[array::indices].get(row_ * k + i)));
    }
    if (nan_) return all_invalid(got);
    if (std::string wrong = distinct(got); !wrong.empty()) return wrong;
    std::vector<std::int64_t> expected = oracle::largest(z_, k);
    if (spec_.unsorted) {
      std::sort(expected.begin(), expected.end());
      if (!std::is_sorted(got.begin(), got.end())) return "the indices are not in order";
    }
    double sum = 0;
    for (const std::int64_t i : got) sum += p_[static_cast<std::size_t>(i)];
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t mine = got[static_cast<std::size_t>(i)];
      const std::int64_t theirs = expected[static_cast<std::size_t>(i)];
      if (mine != theirs && (exact_ || (!spec_.unsorted && !near(z(mine), z(theirs))))) {
        return fmt::format("indices[{}, {}] is {} with {:.9g}, expected {} with {:.9g}", row_, i,
                           mine, z(mine), theirs, z(theirs));
      }
      const double value = value_of(mine, sum);
      if (!close(call_.out(), row_ * k + i, value)) {
        return fmt::format("values[{}, {}] is {:.9g}, expected {:.9g}", row_, i,
                           call_.out().get(row_ * k + i), value);
      }
    }
    return spec_.target ? target() : "";
  }

  double value_of(std::int64_t i, double sum) const {
    const auto at = static_cast<std::size_t>(i);
    switch (spec_.values) {
      case TopkValues::logit: return z_[at];
      case TopkValues::log_probability: return logs_[at];
      case TopkValues::renormalized: return sum == 0 ? 0 : p_[at] / sum;
      case TopkValues::probability: break;
    }
    return p_[at];
  }

  std::string target() const {
    const auto at = static_cast<std::int64_t>(call_[array::target].get(row_));
    const double logprob = logs_[static_cast<std::size_t>(at)];
    if (!close(call_[array::logprob], row_, logprob)) {
      return fmt::format("target_logprob[{}] is {:.9g}, expected {:.9g}", row_,
                         call_[array::logprob].get(row_), logprob);
    }
    const auto rank = static_cast<std::int64_t>(call_[array::rank].get(row_));
    if (exact_ && rank != oracle::rank(z_, at)) {
      return fmt::format("target_rank[{}] is {}, expected {}", row_, rank, oracle::rank(z_, at));
    }
    return {};
  }

  std::string token() const {
    const auto token = static_cast<std::int64_t>(call_.out().get(row_));
    const bool expected = !nan_ && std::isfinite(lse_);
    if ((call_[array::valid].get(row_) != 0) != expected) {
      return fmt::format("valid[{}] is {}", row_, call_[array::valid].get(row_));
    }
    if (!expected) return token == -1 ? "" : fmt::format("token[{}] is {} of no row", row_, token);
    if (token < 0 || token >= spec_.cols()) return fmt::format("token[{}] is {}", row_, token);
    const bool greedy = call_.transform(row_).temperature == 0;
    // A filter's edge lies between elements: one that is as near to it as rounding may
    // be on either side.
    const Row left =
        greedy ? oracle::filtered(z_, 1, 1, 0)
               : oracle::filtered(z_, spec_.top_k, std::min(1.0, spec_.top_p * (1 + 1e-5)),
                                  spec_.min_p * (1 - 1e-5));
    bool may = left[static_cast<std::size_t>(token)] > 0;
    for (std::size_t i = 0; !may && !exact_ && i < left.size(); ++i) {
      may = left[i] > 0 && near(z_[i], z(token));
    }
    if (!may) return fmt::format("token[{}] is {}, which the filters take out", row_, token);
    const double logprob = z(token) - lse_;
    if (!close(call_[array::logprob], row_, logprob)) {
      return fmt::format("logprob[{}] is {:.9g}, expected {:.9g}", row_,
                         call_[array::logprob].get(row_), logprob);
    }
    return {};
  }

  std::string experts() const {
    const std::int64_t k = spec_.k;
    std::vector<std::int64_t> got;
    for (std::int64_t i = 0; i < k; ++i) {
      got.push_back(static_cast<std::int64_t>(call_[array::indices].get(row_ * k + i)));
    }
    const bool soft = spec_.score == GateScore::softmax;
    const bool infinite = soft && std::isinf(lse_) && lse_ > 0;
    if (nan_ || infinite) return all_invalid(got);
    if (std::string wrong = distinct(got); !wrong.empty()) return wrong;
    Row scores = soft ? p_ : z_;
    if (!soft) {
      for (double& s : scores) s = 1 / (1 + std::exp(-s));
    }
    Row keys = spec_.bias ? scores : z_;
    for (std::size_t e = 0; spec_.bias && e < keys.size(); ++e) {
      keys[e] += call_[array::bias].get(static_cast<std::int64_t>(e));
    }
    const std::vector<std::int64_t> expected = oracle::largest(keys, k);
    double sum = 0;
    for (const std::int64_t e : got) sum += scores[static_cast<std::size_t>(e)];
    for (std::int64_t i = 0; i < k; ++i) {
      const auto mine = static_cast<std::size_t>(got[static_cast<std::size_t>(i)]);
      const auto theirs = static_cast<std::size_t>(expected[static_cast<std::size_t>(i)]);
      const double apart = std::abs(keys[mine] - keys[theirs]);
      if (mine != theirs && !(spec_.bias && apart <= 16 * unit() * (1 + std::abs(keys[mine])))) {
        return fmt::format("experts[{}, {}] is {}, expected {}", row_, i, mine, theirs);
      }
      const double weight =
          scores[mine] * spec_.scale / (spec_.renormalize && sum != 0 ? sum : 1.0);
      // Of next to nothing each may have any part: what is below the smallest normal
      // number may be gone.
      const bool faint =
          spec_.renormalize && sum < static_cast<double>(4 * k) * smallest(compute_type(spec_.in));
      const double written = call_.out().get(row_ * k + i) / (spec_.scale == 0 ? 1 : spec_.scale);
      if (faint && written >= 0 && written <= 1.01) continue;
      if (!close(call_.out(), row_ * k + i, weight)) {
        return fmt::format("weights[{}, {}] is {:.9g}, expected {:.9g}", row_, i,
                           call_.out().get(row_ * k + i), weight);
      }
    }
    return {};
  }

  std::string all_invalid(const std::vector<std::int64_t>& got) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double value = call_.out().get(row_ * spec_.k + static_cast<std::int64_t>(i));
      if (got[i] != -1 || !std::isnan(value)) {
        return fmt::format("row {} has a NaN, yet [{}] is {} with {}", row_, i, got[i], value);
      }
    }
    return {};
  }

  std::string distinct(const std::vector<std::int64_t>& got) const {
    for (const std::int64_t i : got) {
      if (i < 0 || i >= spec_.cols()) return fmt::format("row {}: there is no element {}", row_, i);
    }
    return std::set(got.begin(), got.end()).size() == got.size()
               ? ""
               : fmt::format("row {} chose an element twice", row_);
  }

  const Call& call_;
  const Case& spec_;
  std::int64_t row_;
  Row z_, p_, logs_;
  bool exact_ = true;  // z is x: nothing was rounded
  bool nan_ = false;
  double lse_ = 0;
  double size_ = 0;  // of the largest finite logit
};

}  // namespace

std::string check_select(const Call& call, std::int64_t row) { return RowCheck(call, row).run(); }

void expect_select(const Call& call, std::span<const std::int64_t> rows, const Sink& sink) {
  if (!writes_lse(call.spec())) return;
  for (const std::int64_t r : rows) sink.lse(r, lse_bound(RowBounds(call, r)));
}

}  // namespace onepass::cli
