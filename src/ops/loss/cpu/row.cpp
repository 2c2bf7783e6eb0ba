// cross_entropy, cross_entropy_backward, both at once: cpu_row, cpu_split.
//
// Idea    the row's State, with Σ z and the count of classes beside it where labels are smoothed.
//         loss = lse − (1 − s)·z[target] − s·mean(z) + z_loss·lse²
//         dx   = p·(1 + 2·z_loss·lse) − (1 − s)·[c = target] − s/classes, times dloss and dz/dx
// Bytes   x once (forward); x once and dx once while a row stays in cache, or where the forward's
//         lse is passed and labels are not smoothed (backward, with or without the loss).
// Limits  none: every dtype, stride, mask and length.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/loss/cpu/row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/loss/classes.hpp"
#include "ops/loss/cpu/loss-inl.hpp"
#include "ops/loss/cpu/variants.hpp"
#include "rows/cpu/drive-inl.hpp"
#include "rows/cpu/lse-inl.hpp"
#include "rows/cpu/run.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using ops::loss::Classes;

// Both directions: the target, and the fold over a row that is not ignored.
template <class Element>
struct LossBody {
  using T = Element;
  using Partial = Classes<double, LongState>;

  struct Row {
    Row(const RowArgs& args, const CpuLaunch& launch, int64_t row)
        : z(args.space, args.logits, row),
          dx(args.space, args.op == Op::cross_entropy ? Operand{} : args.out, row,
             launch.streaming),
          index(row),
          target(read_at<int64_t>(args.space, args.target, row)),
          ignored(target == args.ignore_index) {}
    Columns live() const { return z.live(); }
    bool target_live() const { return target >= live().begin && target < live().end; }

    LogitsReader<T> z;
    RowWriter<T> dx;
    int64_t index, target;
    bool ignored;
  };

  const RowArgs& args;
  const CpuLaunch& launch;

  Partial fold_classes(const Row& row, Columns columns, Keep<T>& keep, bool with_state) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const V none = hn::Set(d, minus_infinity<T>());
    Partial total{};
    for_each_tile(columns, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      row.z.with_tile(c, n, keep.buffers, [&](auto* z) ONEPASS_INLINE {
        if (with_state) total.state = FoldTile(d, z, n, total.state);
        if (args.label_smoothing == 0) return;
        // A tile of the largest numbers would add up to an infinity: as 1 / kTile of
        // them it does not.
        const V part = hn::Set(d, T(1) / T(kTile));
        total.sum += static_cast<double>(kTile) *
                     static_cast<double>(
                         SumOf(d, z, n, minus_infinity<T>(), [=](auto& v, size_t) ONEPASS_INLINE {
                           for (V& each : v) {
                             each = hn::IfThenZeroElse(hn::Eq(each, none), hn::Mul(each, part));
                           }
                         }));
        total.count += static_cast<double>(
            SumOf(d, z, n, minus_infinity<T>(), [=](auto& v, size_t) ONEPASS_INLINE {
              for (V& each : v) each = hn::IfThenZeroElse(hn::Eq(each, none), hn::Set(d, T(1)));
            }));
      });
    });
    return total;
  }

  // Also writes the lse, if the call asks for it.
  void write_loss(const Row& row, const Partial& total, const Operand& to, Keep<T>& keep) const {
    const T lse = RowLse(row.z, total.state, keep.buffers);
    if (args.lse) write_at(args.space, args.lse, row.index, 0, lse);
    WriteLoss(args, to, row.index, row.ignored ? 0 : loss_of(row, total, lse, keep));
  }

  // Relative to m, so that a large offset common to the row costs no digits. A double: a distance
  // from m, or a row's loss, may be past the largest float where what the smoothing leaves of it,
  // or the mean of all, is not.
  double loss_of(const Row& row, const Partial& total, T lse, Keep<T>& keep) const {
    const auto state = narrow<double>(total.state);
    if (state.d == 0) return -minus_infinity<double>();  // every class has probability 0
    const T z = row.target_live() ? row.z.at(row.target, keep.buffers) : minus_infinity<T>();
    const double log_d = std::log(state.d);
    const double smoothing = args.label_smoothing;
    double loss =
        smoothing < 1 ? (1 - smoothing) * ((state.m - static_cast<double>(z)) + log_d) : 0;
    if (smoothing > 0) loss += smoothing * ((state.m - total.sum / total.count) + log_d);
    const auto square = static_cast<double>(lse) * static_cast<double>(lse);
    return args.z_loss == 0 ? loss : loss + args.z_loss * square;
  }
};

template <class Element>
struct BackwardBody : LossBody<Element> {
  using typename LossBody<Element>::T;
  using typename LossBody<Element>::Partial;
  using typename LossBody<Element>::Row;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    const RowArgs& args = this->args;
    const bool knows_lse = KnowsLse(args);
    Partial total{};
    const bool skips = row.ignored && !(args.loss && args.lse);
    if (!skips && (!knows_lse || args.label_smoothing > 0)) {
      total = this->fold_classes(row, columns, keep, !knows_lse);
    }
    // exp(z − lse) is the weight of a state whose maximum is the lse and whose sum is 1. Every
    // piece of the row says so; the pieces' merge must not count it twice.
    if (knows_lse) total.state = {};
    return total;
  }

  void finish(const Row& row, Partial total, Columns columns, Keep<T>& keep) const {
    if (row.ignored) return row.dx.fill(columns, T(0));
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const RowArgs& args = this->args;
    if (KnowsLse(args)) {
      const T lse = read_at<T>(args.space, args.lse, row.index);
      if (lse != minus_infinity<T>()) total.state = leaf(lse);
    }
    const State<T> state = narrow<T>(total.state);
    if (state.d == T(0)) return row.dx.fill(columns, T(0));  // fully masked
    const T lse = static_cast<T>(logsumexp(total.state));
    const T smoothing = static_cast<T>(args.label_smoothing);
    const T dloss = static_cast<T>(GivenGradient(args, row.index));
    const V m = hn::Set(d, state.m);
    const V factor = hn::Set(d, (T(1) + T(2) * static_cast<T>(args.z_loss) * lse) / state.d);
    const V smooth = hn::Set(d, smoothing > T(0) ? smoothing / static_cast<T>(total.count) : T(0));
    const V none = hn::Set(d, minus_infinity<T>());
    for_each_tile(columns, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      T* dx = keep.buffers.out;
      row.z.with_tile(c, n, keep.buffers, [=](auto* z) ONEPASS_INLINE {
        Map(d, z, n, dx, [=](V v) ONEPASS_INLINE {
          const V p = hn::Mul(ExpOfNonPositive(d, hn::Sub(v, m)), factor);
          return hn::IfThenZeroElse(hn::Eq(v, none), hn::Sub(p, smooth));
        });
      });
      if (row.target >= c && row.target < c + static_cast<int64_t>(n) &&
          row.z.at(row.target, keep.buffers) != minus_infinity<T>()) {
        dx[row.target - c] -= T(1) - smoothing;
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
  args.op == Op::cross_entropy ? Drive<LossForward<LossBody<T>>>(args, launch, team, memory)
                               : Drive<BackwardBody<T>>(args, launch, team, memory);
}

void LossWorker(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  compute_type(args.logits.x.dtype) == DType::f64 ? WorkAs<double>(args, launch, team, memory)
                                                  : WorkAs<float>(args, launch, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::loss {

HWY_EXPORT(LossWorker);

Status cpu_row(const RowArgs& args, const CpuLaunch& launch) {
  if (args.weight || args.has_probabilities) return cpu_weighted(args, launch);
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(LossWorker));
}

}  // namespace onepass::ops::loss
#endif
