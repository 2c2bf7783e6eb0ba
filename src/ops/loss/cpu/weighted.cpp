// cross_entropy, cross_entropy_backward, both at once, where classes have weights or targets are
// their probabilities: cpu_row, cpu_split.
//
// Idea    a row folds to its Shares: beside the state what the classes weigh together.
// Versus  cpu.cpp: the sums over the classes are weighted, and in float64 from tile to tile.
// Bytes   x and the probabilities once (forward); these once and dx once while a row of all stays
//         in cache (backward). The weights, which all rows share, come from a cache.
// Limits  none: every dtype, stride, mask and length.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/loss/cpu/weighted.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/loss/cpu/loss-inl.hpp"
#include "ops/loss/cpu/variants.hpp"
#include "ops/loss/shares.hpp"
#include "rows/cpu/drive-inl.hpp"
#include "rows/cpu/lse-inl.hpp"
#include "rows/cpu/run.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using ops::loss::half_shift;
using ops::loss::Labels;
using ops::loss::labels;
using ops::loss::Shares;
using ops::loss::weights_of;

// Σ f(a[i], b[i]). Past the end f is given (0, −inf), of which it makes 0.
template <class D, class F, class T = hn::TFromD<D>>
ONEPASS_FORCED double SumOfPairs(D d, const T* a, const T* b, size_t n, F f) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sum[kPack];
  for (V& each : sum) each = hn::Zero(d);
  size_t i = 0;
  for (; i + kPack * lanes <= n; i += kPack * lanes) {
    for (size_t k = 0; k < kPack; ++k) {
      const size_t at = i + k * lanes;
      sum[k] = hn::Add(sum[k], f(hn::LoadU(d, a + at), hn::LoadU(d, b + at)));
    }
  }
  for (; i < n; i += lanes) {
    const size_t count = HWY_MIN(lanes, n - i);
    sum[0] = hn::Add(
        sum[0], f(LoadTail(d, a + i, count, T(0)), LoadTail(d, b + i, count, minus_infinity<T>())));
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, SumOfPack(sum))));
}

// Both directions: the target, the weights, and the fold over a row that is not ignored.
template <class Element>
struct WeightedBody {
  using T = Element;
  using Partial = Shares<LongState>;

  struct Row {
    Row(const RowArgs& args, const CpuLaunch& launch, int64_t row)
        : z(args.space, args.logits, row),
          weights(args.space, args.weight, row),
          probabilities(args.space, args.has_probabilities ? args.target : Operand{}, row),
          dx(args.space, args.op == Op::cross_entropy ? Operand{} : args.out, row,
             launch.streaming),
          index(row),
          cols(args.space.cols),
          has_target(!args.has_probabilities),
          target(has_target
                     ? read_one<int64_t>(row_data(args.space, args.target, row), args.target.dtype)
                     : -1),
          ignored(has_target && target == args.ignore_index),
          weight(has_target && !ignored ? static_cast<T>(weight_of(args.weight, target)) : T(0)) {}
    // A probability counts where its logit is hidden, too.
    Columns live() const { return has_target ? z.live() : Columns{0, cols}; }
    bool target_live() const { return target >= z.live().begin && target < z.live().end; }

    LogitsReader<T> z;
    RowReader<T> weights, probabilities;
    RowWriter<T> dx;
    int64_t index, cols;
    bool has_target;  // an index: its class and
    int64_t target;
    bool ignored;
    T weight;  // the target's
  };

  const RowArgs& args;
  const CpuLaunch& launch;

  bool smooths() const { return args.label_smoothing > 0; }

  // The columns of a piece that no mask's end cuts off.
  static Columns seen_of(const Row& row, Columns piece) {
    const Columns live = row.z.live();
    return {std::clamp(live.begin, piece.begin, piece.end),
            std::clamp(live.end, piece.begin, piece.end)};
  }

  Partial fold_classes(const Row& row, Columns columns, Keep<T>& keep, bool with_state) const {
    Partial total = Partial{};
    const Columns seen = seen_of(row, columns);
    for_each_tile(seen, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      add_tile(row, c, n, row.z.tile(c, n, keep.buffers), keep.buffers, with_state, total);
    });
    for (const Columns hidden : {Columns{columns.begin, seen.begin}, {seen.end, columns.end}}) {
      for_each_tile(hidden, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
        std::fill_n(keep.buffers.x, n, minus_infinity<T>());
        add_tile(row, c, n, keep.buffers.x, keep.buffers, with_state, total);
      });
    }
    return total;
  }

  // The weights of some columns, and what comes of them for a target of probabilities, w · q.
  const T* class_weights(const Row& row, int64_t c, size_t n, T* buffer) const {
    if (args.weight) return row.weights.tile(c, n, buffer);
    std::fill_n(buffer, n, T(1));
    return buffer;
  }
  const T* shares_of(const Row& row, int64_t c, size_t n, Buffers<T>& buffers) const {
    const T* q = row.probabilities.tile(c, n, buffers.out);
    if (!args.weight) return q;
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    Map2(d, q, row.weights.tile(c, n, buffers.other), n, buffers.out,
         [](V a, V w) ONEPASS_INLINE { return hn::Mul(a, w); });
    return buffers.out;
  }

  // Also writes the lse, if the call asks for it.
  void write_loss(const Row& row, Partial total, const Operand& to, Keep<T>& keep) const {
    const T lse = RowLse(row.z, total.state, keep.buffers);
    if (args.lse) write_at(args.space, args.lse, row.index, 0, lse);
    double loss = 0;
    if (!row.ignored) {
      const T z = row.target_live() ? row.z.at(row.target, keep.buffers) : minus_infinity<T>();
      if (row.has_target) total = with_target(total, row.weight, z);
      loss = loss_of(total, args.label_smoothing, args.z_loss, static_cast<double>(lse));
    }
    WriteLoss(args, to, row.index, loss);
  }

  // What some classes have of the labels, but for a target that is an index.
  void label_tile(const Row& row, int64_t c, size_t n, const Labels& of, Buffers<T>& buffers,
                  T* label) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const V own = hn::Set(d, static_cast<T>(of.own));
    const V smooth = hn::Set(d, static_cast<T>(of.smooth));
    if (row.has_target) {
      std::fill_n(label, n, T(0));
    } else {
      Map(d, shares_of(row, c, n, buffers), n, label,
          [=](V a) ONEPASS_INLINE { return hn::Mul(a, own); });
    }
    if (of.smooth == 0) return;
    Map2(d, static_cast<const T*>(label), class_weights(row, c, n, buffers.other), n, label,
         [=](V a, V w) ONEPASS_INLINE { return hn::MulAdd(w, smooth, a); });
  }

 private:
  // Logits that are staged lie in buffers.x.
  void add_tile(const Row& row, int64_t c, size_t n, const T* z, Buffers<T>& buffers,
                bool with_state, Partial& total) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const V none = hn::Set(d, minus_infinity<T>());
    Partial tile = Partial{};
    const State<T> state = with_state ? FoldTile(d, z, n, identity<T>()) : identity<T>();
    tile.state = state;
    // Of a tile of the largest numbers even the halves would add up to an infinity: what is summed
    // is 1 / kTile of them.
    const V half = hn::Set(d, T(0.5) / T(kTile));
    const V by = hn::Set(d, half_shift(state.m) / T(kTile));
    if (smooths()) {
      const T* w = class_weights(row, c, n, buffers.other);
      tile.count = SumOfPairs(d, w, z, n, [=](V, V v) ONEPASS_INLINE {
        return hn::IfThenZeroElse(hn::Eq(v, none), hn::Set(d, T(1)));
      });
      tile.weight = SumOfPairs(d, w, z, n, [=](V each, V v) ONEPASS_INLINE {
        return hn::IfThenZeroElse(hn::Eq(v, none), each);
      });
      tile.spread =
          kTile * SumOfPairs(d, w, z, n, [=](V each, V v) ONEPASS_INLINE {
            return hn::IfThenZeroElse(hn::Eq(v, none), hn::Mul(each, hn::MulSub(v, half, by)));
          });
    }
    if (!row.has_target) {
      const T* a = shares_of(row, c, n, buffers);
      tile.share = SumOfPairs(d, a, z, n, [](V each, V) ONEPASS_INLINE { return each; });
      tile.drawn = kTile * SumOfPairs(d, a, z, n, [=](V each, V v) ONEPASS_INLINE {
                     return hn::IfThenZeroElse(hn::Eq(each, hn::Zero(d)),
                                               hn::Mul(each, hn::MulSub(v, half, by)));
                   });
    }
    total = merge(total, tile);
  }
};

template <class Element>
struct WeightedBackward : WeightedBody<Element> {
  using typename WeightedBody<Element>::T;
  using typename WeightedBody<Element>::Partial;
  using typename WeightedBody<Element>::Row;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    const RowArgs& args = this->args;
    const bool skips = row.ignored && !(args.loss && args.lse);
    if (skips || (KnowsLse(args) && !this->smooths() && row.has_target)) return Partial{};
    return this->fold_classes(row, columns, keep, !KnowsLse(args));
  }

  void finish(const Row& row, Partial total, Columns columns, Keep<T>& keep) const {
    if (row.ignored) return row.dx.fill(columns, T(0));
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const RowArgs& args = this->args;
    // exp(z − lse) is the weight of a state whose maximum is the lse and whose sum is 1.
    if (KnowsLse(args)) {
      const T lse = read_at<T>(args.space, args.lse, row.index);
      total.state = lse == minus_infinity<T>() ? identity<T>() : leaf(lse);
    }
    const double weights = weights_of(total.state);
    if (weights == 0) return row.dx.fill(columns, T(0));  // fully masked
    if (row.has_target) total.share = static_cast<double>(row.weight);
    const Labels of = labels(total, args.label_smoothing);
    const double z_slope = 2 * args.z_loss * logsumexp(total.state);
    const T dloss = static_cast<T>(GivenGradient(args, row.index));
    const V m = hn::Set(d, static_cast<T>(total.state.m));
    const V factor = hn::Set(d, static_cast<T>((of.sum + z_slope) / weights));
    const V none = hn::Set(d, minus_infinity<T>());
    const Columns seen = this->seen_of(row, columns);
    row.dx.fill({columns.begin, seen.begin}, T(0));
    row.dx.fill({seen.end, columns.end}, T(0));
    HWY_ALIGN T label[kTile];
    for_each_tile(seen, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      this->label_tile(row, c, n, of, keep.buffers, label);
      T* dx = keep.buffers.out;
      const T* z = row.z.tile(c, n, keep.buffers);
      Map2(d, z, static_cast<const T*>(label), n, dx, [=](V v, V a) ONEPASS_INLINE {
        const V p = hn::Mul(ExpOfNonPositive(d, hn::Sub(v, m)), factor);
        return hn::IfThenZeroElse(hn::Eq(v, none), hn::Sub(p, a));
      });
      if (row.target >= c && row.target < c + static_cast<int64_t>(n) &&
          z[row.target - c] != minus_infinity<T>()) {
        dx[row.target - c] -= static_cast<T>(of.own) * row.weight;
      }
      row.z.chain(c, n, dx, keep.buffers);
      row.z.hide(c, n, dx, T(0));  // what is hidden may be a NaN, and the softcap's slope there too
      row.dx.store(c, n, dx, dloss);
    });
  }

  void hide(const Row& row, Partial, Columns columns) const { row.dx.fill(columns, T(0)); }
  void conclude(const Row& row, Partial total, Keep<T>& keep) const {
    if (this->args.loss) this->write_loss(row, total, this->args.loss, keep);
  }
};

template <class T>
void WorkAs(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  args.op == Op::cross_entropy ? Drive<LossForward<WeightedBody<T>>>(args, launch, team, memory)
                               : Drive<WeightedBackward<T>>(args, launch, team, memory);
}

void WeightedWorker(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  compute_type(args.logits.x.dtype) == DType::f64 ? WorkAs<double>(args, launch, team, memory)
                                                  : WorkAs<float>(args, launch, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::loss {

HWY_EXPORT(WeightedWorker);

Status cpu_weighted(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(WeightedWorker));
}

}  // namespace onepass::ops::loss
#endif
