// gate: cpu_row.
//
// Idea    a row of scores is short: its logits lie in a buffer, and what is exponentiated beside
//         them. The K largest are found as topk finds them; without a bias by the logits, which
//         distinguish more.
// Bytes   scores once.
// Limits  none: any number of experts, every dtype and stride.
// Proof   tests/ops/select/sample_test.cpp, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/select/cpu/gate_row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>
#include <vector>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/select/args.hpp"
#include "ops/select/cpu/offer-inl.hpp"
#include "ops/select/cpu/variants.hpp"
#include "rows/cpu/run.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class Gate {
 public:
  explicit Gate(const RowArgs& args)
      : args_(args),
        select_(*args.select),
        n_(static_cast<size_t>(args.space.cols)),
        best_(select_.k) {
    z_.resize(n_ + kTile);  // whole vectors are written
    scores_.resize(n_ + kTile);
    if (!select_.bias) return;
    for (size_t e = 0; e < n_; ++e) {
      const auto at = static_cast<int64_t>(e) * select_.bias.col_stride;
      bias_.push_back(read<T>(select_.bias.data, select_.bias.dtype, at));
    }
    keys_.resize(n_);
  }

  void run(int64_t row) {
    const hn::ScalableTag<T> d;
    const LogitsReader<T> reader(args_.space, args_.logits, row);
    for (size_t c = 0; c < n_; c += kTile) {
      const size_t n = std::min<size_t>(kTile, n_ - c);
      const T* tile = TileOf(reader, static_cast<int64_t>(c), n, buffers_);
      std::copy(tile, tile + n, z_.data() + c);
    }
    const bool soft = select_.score == GateScore::softmax;
    const T m = MaxOf(d, z_.data(), n_);
    State<T> state{m, T(0)};
    if (soft || !bias_.empty()) state.d = score(soft, m);
    const bool biased = !bias_.empty();
    for (size_t e = 0; biased && e < n_; ++e) {
      keys_[e] = (soft && state.d != T(0) ? scores_[e] / state.d : scores_[e]) + bias_[e];
    }
    const T* keys = biased ? keys_.data() : z_.data();
    if (!sound(keys, soft, state)) return write_broken(row);
    best_.restart(select_.k);
    for (size_t c = 0; c < n_; c += kTile) {
      OfferTile(keys + c, std::min<size_t>(kTile, n_ - c), static_cast<int64_t>(c), select_.k,
                best_);
    }
    chosen_ = best_.sorted();
    fill_up(chosen_, select_.k);
    write_selected(row, soft, state);
  }

 private:
  // Of every expert exp(z − m) or the sigmoid; gives the sum.
  T score(bool soft, T m) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<hn::ScalableTag<T>>;
    const V one = hn::Set(d, T(1));
    const V shift = hn::Set(d, m == minus_infinity<T>() ? T(0) : m);
    Map(d, z_.data(), n_, scores_.data(), [=](V z) ONEPASS_INLINE {
      if (soft) return ExpOfNonPositive(d, hn::Sub(z, shift));
      const V t = ExpOfNonPositive(d, hn::Neg(hn::Abs(z)));
      return hn::Div(hn::IfThenElse(hn::Ge(z, hn::Zero(d)), one, t), hn::Add(one, t));
    });
    return SumOf(d, scores_.data(), n_, T(0), [](auto&, size_t) ONEPASS_INLINE {});
  }

  // No NaN, and of a softmax no +inf: both are in its sum.
  bool sound(const T* keys, bool soft, State<T> state) const {
    const auto is_nan = [](auto v) ONEPASS_INLINE { return hn::IsNaN(v); };
    if (soft && std::isnan(state.d)) return false;
    return (soft || CountIf(z_.data(), n_, is_nan) == 0) &&
           (bias_.empty() || CountIf(keys, n_, is_nan) == 0);
  }

  T weight_of(int64_t expert, bool soft, State<T> state) const {
    const T z = z_[static_cast<size_t>(expert)];
    if (soft) return weight(state, z);
    const T t = std::exp(-std::abs(z));
    return (z >= T(0) ? T(1) : t) / (T(1) + t);
  }

  void write_selected(int64_t row, bool soft, State<T> state) {
    double sum = 0;
    for (Candidate<T>& c : chosen_) {
      c.z = weight_of(c.index, soft, state);
      sum += static_cast<double>(c.z);
    }
    // Not times 1 / sum, which is infinite where the sum is subnormal: a bias can select experts of
    // next to no weight.
    const T total = select_.renormalize && sum != 0 ? static_cast<T>(sum) : T(1);
    for (int64_t i = 0; i < select_.k; ++i) {
      const Candidate<T>& c = chosen_[static_cast<size_t>(i)];
      put(row, i, c.z / total * static_cast<T>(select_.scale), c.index);
    }
  }

  void write_broken(int64_t row) const {
    for (int64_t i = 0; i < select_.k; ++i) put(row, i, std::numeric_limits<T>::quiet_NaN(), -1);
  }

  void put(int64_t row, int64_t i, T value, int64_t expert) const {
    write_at(args_.space, args_.out, row, i, value);
    write_at(args_.space, select_.indices, row, i, expert);
  }

  const RowArgs& args_;
  const Select& select_;
  size_t n_;
  Buffers<T> buffers_;
  std::vector<T> z_, scores_, bias_, keys_;
  Best<T> best_;
  std::vector<Candidate<T>> chosen_;
};

template <class T>
void GateRows(const RowArgs& args, Team& team) {
  constexpr int64_t block = 64;
  Gate<T> gate(args);
  for (int64_t first = team.take(block); first < args.space.rows; first = team.take(block)) {
    for (int64_t r = first; r < std::min(first + block, args.space.rows); ++r) gate.run(r);
  }
}

void GateWorker(const RowArgs& args, const CpuLaunch&, Team& team, std::byte*) {
  compute_type(args.logits.x.dtype) == DType::f64 ? GateRows<double>(args, team)
                                                  : GateRows<float>(args, team);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::select {

HWY_EXPORT(GateWorker);

Status cpu_gate_row(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(GateWorker));
}

}  // namespace onepass::ops::select
#endif
