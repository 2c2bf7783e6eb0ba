// softmax_backward, log_softmax_backward: cpu_row, cpu_split.
//
// Idea    dx = (dy − Σ dy·y)·y for softmax, dy − exp(y)·Σ dy for log-softmax: the same fold, climb
//         and finish as the forward, with a plain sum for a state.
// Bytes   y and dy once and dx once while a row of both stays in cache; else y and dy twice.
// Limits  none: every dtype, stride, mask and length. With a softcap x is read too.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/cpu/backward_row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "core/sum.hpp"
#include "merge/lane-inl.hpp"
#include "ops/softmax/cpu/variants.hpp"
#include "rows/cpu/drive-inl.hpp"
#include "rows/cpu/run.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class Element, bool Log>
struct BackwardBody {
  using T = Element;
  using Partial = Sum<double>;  // a long one

  struct Row {
    Row(const RowArgs& args, const CpuLaunch& launch, int64_t row)
        : logits(args.space, args.logits, row),
          y(args.space, args.y, row),
          dy(args.space, args.dy, row),
          dx(args.space, args.out, row, launch.streaming) {}
    Columns live() const { return logits.live(); }

    LogitsReader<T> logits;  // masks and scales; x itself only with a softcap
    RowReader<T> y, dy;
    RowWriter<T> dx;
  };

  const RowArgs& args;
  const CpuLaunch& launch;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    Partial total{0};
    for_each_tile(columns, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      // A hidden logit has no say in the gradient: its term is 0, whatever y and dy hold there.
      T* term = keep.buffers.out;
      const T* dy = row.dy.tile(c, n, keep.buffers.other);
      if constexpr (Log) {
        Map(d, dy, n, term, [](V g) ONEPASS_INLINE { return g; });
      } else {
        Map2(d, row.y.tile(c, n, keep.buffers.x), dy, n, term,
             [](V y, V g) ONEPASS_INLINE { return hn::Mul(y, g); });
      }
      row.logits.hide(c, n, term, T(0));
      total.value += static_cast<double>(
          SumOf(d, static_cast<const T*>(term), n, T(0), [](auto&, size_t) ONEPASS_INLINE {}));
    });
    return total;
  }

  void finish(const Row& row, Partial total, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const V sum = hn::Set(d, static_cast<T>(total.value));
    for_each_tile(columns, row.dx.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      T* dx = keep.buffers.out;
      const T* dy = row.dy.tile(c, n, keep.buffers.other);
      const T* y = row.y.tile(c, n, keep.buffers.x);
      if constexpr (Log) {
        Map2(d, y, dy, n, dx, [=](V v, V g) ONEPASS_INLINE {
          return hn::NegMulAdd(ExpOfNonPositive(d, v), sum, g);
        });
      } else {
        Map2(d, y, dy, n, dx, [=](V v, V g) ONEPASS_INLINE { return hn::Mul(hn::Sub(g, sum), v); });
      }
      row.logits.chain(c, n, dx, keep.buffers);
      row.logits.hide(c, n, dx, T(0));
      row.dx.store(c, n, dx, T(1));
    });
  }

  void hide(const Row& row, Partial, Columns columns) const { row.dx.fill(columns, T(0)); }
  void conclude(const Row&, Partial, Keep<T>&) const {}
};

template <class T>
void WorkAs(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  args.op == Op::softmax_backward ? Drive<BackwardBody<T, false>>(args, launch, team, memory)
                                  : Drive<BackwardBody<T, true>>(args, launch, team, memory);
}

void BackwardWorker(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  const bool wide = args.y.dtype == DType::f64 || args.dy.dtype == DType::f64;
  wide ? WorkAs<double>(args, launch, team, memory) : WorkAs<float>(args, launch, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::softmax {

HWY_EXPORT(BackwardWorker);

Status cpu_backward_row(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(BackwardWorker));
}

}  // namespace onepass::ops::softmax
#endif
