// softmax/cpu_lanes: the axis is not the innermost dimension; a row per lane.
//
// Idea    where neighbours in memory belong to neighbouring rows, a vector holds one column of as
//         many rows as it has lanes: no lane ever needs another, and the merge is a vector merge.
// Versus  cpu_row: that one would gather each row from as many cache lines as it has elements.
// Bytes   x twice and y once; the second read is from cache while cols lines of memory fit.
// Limits  softmax and log_softmax, no options; f32, f16, bf16 and f64 without change of type width
//         beyond what a vector load converts.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/cpu/lanes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/softmax/cpu/variants.hpp"
#include "rows/cpu/layout.hpp"
#include "rows/cpu/run.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Columns folded against one maximum: a strip this tall and a cache line wide stays in L1.
inline constexpr int64_t kStrip = 128;

template <class D, class Stored, class T = hn::TFromD<D>>
ONEPASS_FORCED hn::Vec<D> LoadSome(D d, const Stored* p, size_t count) {
  return count == hn::Lanes(d) ? LoadLanes(d, p) : LoadTail(d, p, count, T(0));
}

template <class D, class Stored>
ONEPASS_FORCED void StoreSome(D d, hn::Vec<D> v, Stored* p, size_t count) {
  count == hn::Lanes(d) ? StoreLanes(d, v, p) : StoreTail(d, v, p, count);
}

// The states of `count` rows side by side, at most a vector of them. A function of its own: one
// for all types that y may have.
//
// Long sums stay exact: a strip is summed in short runs, and what adding strips rounds off is kept.
// Strips are weighed against a reference that rises only when the maximum leaves it by more than 1:
// a maximum that creeps would round the sum at every strip, while errors that a factor of e lies
// between fade as fast as they come.
template <class D, class In>
HWY_NOINLINE void FoldLanes(D d, const In* x, int64_t x_stride, int64_t cols, size_t count,
                            LaneState<hn::Vec<D>>& row) {
  using V = hn::Vec<D>;
  constexpr int64_t kRun = 16;
  const V one = hn::Set(d, hn::TFromD<D>(1));
  LaneState<V> sum = LaneIdentity(d);  // m is the reference
  V lost = hn::Zero(d);
  V most = sum.m;
  for (int64_t begin = 0; begin < cols; begin += kStrip) {
    const int64_t end = std::min(begin + kStrip, cols);
    for (int64_t c = begin; c < end; ++c)
      most = hn::Max(most, LoadSome(d, x + c * x_stride, count));
    const V m = hn::IfThenElse(hn::Gt(most, hn::Add(sum.m, one)), most, sum.m);
    lost = hn::Mul(lost, RaiseTo(d, m, sum));
    const V shift = FiniteShift(d, m);
    V strip = hn::Zero(d);
    for (int64_t c = begin; c < end;) {
      V run = hn::Zero(d);
      for (const int64_t last = std::min(c + kRun, end); c < last; ++c) {
        run =
            hn::Add(run, ExpOfNonPositive(d, hn::Sub(LoadSome(d, x + c * x_stride, count), shift)));
      }
      strip = hn::Add(strip, run);
    }
    const V total = hn::Add(sum.d, strip);
    const V kept = hn::Sub(total, strip);
    lost = hn::Add(lost, hn::Add(hn::Sub(sum.d, kept), hn::Sub(strip, hn::Sub(total, kept))));
    sum.d = total;
  }
  sum.d = hn::Add(sum.d, lost);
  RaiseTo(d, most, sum);
  row = sum;
}

template <class T, bool Log, class In, class Out>
void LaneRows(const In* x, int64_t x_stride, Out* y, int64_t y_stride, int64_t cols, size_t count) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  LaneState<V> row;
  FoldLanes(d, x, x_stride, cols, count, row);
  const V shift = FiniteShift(d, row.m);
  const auto empty = hn::Eq(row.d, hn::Zero(d));
  if constexpr (Log) {
    HWY_ALIGN T logs[hn::MaxLanes(d)];
    hn::Store(row.d, d, logs);
    for (T& v : logs) v = std::log(v);  // Highway's own knows no NaN
    const V log_d = hn::IfThenZeroElse(empty, hn::Load(d, logs));
    for (int64_t c = 0; c < cols; ++c) {
      const V z = LoadSome(d, x + c * x_stride, count);
      StoreSome(d, hn::Sub(hn::Sub(z, shift), log_d), y + c * y_stride, count);
    }
  } else {
    const V inverse = hn::IfThenZeroElse(empty, hn::Div(hn::Set(d, T(1)), row.d));
    for (int64_t c = 0; c < cols; ++c) {
      const V z = LoadSome(d, x + c * x_stride, count);
      StoreSome(d, hn::Mul(ExpOfNonPositive(d, hn::Sub(z, shift)), inverse), y + c * y_stride,
                count);
    }
  }
}

template <class T, bool Log, class In, class Out>
void LaneBlocks(const RowArgs& args, Team& team) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const RowSpace& space = args.space;
  const int64_t side = space.extent[static_cast<size_t>(space.rank - 1)];
  const int64_t blocks_a_side = ceil_div(side, lanes);
  const int64_t blocks = blocks_a_side * (space.rows / side);
  // Four neighbouring vectors at a time: with 16-byte vectors that is one cache line.
  for (int64_t first = team.take(4); first < blocks; first = team.take(4)) {
    for (int64_t b = first; b < std::min(first + 4, blocks); ++b) {
      const int64_t begin = (b % blocks_a_side) * lanes;
      const int64_t row = b / blocks_a_side * side + begin;
      LaneRows<T, Log>(static_cast<const In*>(row_data(space, args.logits.x, row)),
                       args.logits.x.col_stride, static_cast<Out*>(row_data(space, args.out, row)),
                       args.out.col_stride, space.cols,
                       static_cast<size_t>(std::min(lanes, side - begin)));
    }
  }
}

template <bool Log>
void WorkAs(const RowArgs& args, Team& team) {
  with_type(args.logits.x.dtype, [&]<class In>(Type<In>) {
    with_type(args.out.dtype, [&]<class Out>(Type<Out>) {
      if constexpr (!std::is_integral_v<In> && !std::is_integral_v<Out>) {
        using T = std::conditional_t<std::is_same_v<In, double>, double, float>;
        LaneBlocks<T, Log, In, Out>(args, team);
      }
    });
  });
}

void LanesWorker(const RowArgs& args, const CpuLaunch&, Team& team, std::byte*) {
  args.op == Op::log_softmax ? WorkAs<true>(args, team) : WorkAs<false>(args, team);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::softmax {

HWY_EXPORT(LanesWorker);

Status cpu_lanes(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(LanesWorker));
}

}  // namespace onepass::ops::softmax
#endif
