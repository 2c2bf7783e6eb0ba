// softmax/cpu_short: rows of a few vectors.
//
// Idea    in a row of 32 elements the arithmetic takes as long as finding out what to do; here that
//         is found out once for all rows, and the loop holds nothing but loads, exp and stores.
// Versus  cpu_row: the same fold of one tile, without options, ranges, tiles or dtype switches.
// Bytes   x once and y once.
// Limits  softmax and log_softmax without options, dense rows, at most kShortCols elements,
//         computed in float32.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/cpu/short.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/softmax/cpu/policy.hpp"
#include "ops/softmax/cpu/variants.hpp"
#include "rows/cpu/layout.hpp"
#include "rows/cpu/run.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rows to come, read and written.
template <class In, class Out>
ONEPASS_FORCED void FetchRows(const In* x, const Out* y, size_t count) {
  Fetch(x, kFetchAhead * sizeof(In), count * sizeof(In));
  Fetch<true>(y, kFetchAhead * sizeof(Out), count * sizeof(Out));
}

// A row of K vectors that never leaves the registers.
template <bool Log, size_t K, class In, class Out>
ONEPASS_FORCED void RegisterRow(const In* x, Out* y, size_t cols) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const size_t last = cols - (K - 1) * lanes;
  const bool whole = last == lanes;
  FetchRows(x, y, cols);
  V z[K];
  for (size_t k = 0; k + 1 < K; ++k) z[k] = LoadLanes(d, x + k * lanes);
  z[K - 1] = whole ? LoadLanes(d, x + (K - 1) * lanes)
                   : LoadTail(d, x + (K - 1) * lanes, last, minus_infinity<float>());
  V m = z[0];
  for (size_t k = 1; k < K; ++k) m = hn::Max(m, z[k]);
  const V shift = FiniteShift(d, hn::MaxOfLanes(d, m));
  V e[K];
  for (size_t k = 0; k < K; ++k) e[k] = z[k] = hn::Sub(z[k], shift);
  ExpOfNonPositive(d, e);
  V sum = e[0];
  for (size_t k = 1; k < K; ++k) sum = hn::Add(sum, e[k]);
  sum = hn::SumOfLanes(d, sum);
  if constexpr (Log) {
    const float total = hn::GetLane(sum);
    const V log_d = hn::Set(d, total == 0 ? 0.0F : std::log(total));
    for (size_t k = 0; k < K; ++k) e[k] = hn::Sub(z[k], log_d);
  } else {
    const V inverse = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), hn::Div(hn::Set(d, 1.0F), sum));
    for (size_t k = 0; k < K; ++k) e[k] = hn::Mul(e[k], inverse);
  }
  for (size_t k = 0; k + 1 < K; ++k) StoreLanes(d, e[k], y + k * lanes);
  whole ? StoreLanes(d, e[K - 1], y + (K - 1) * lanes)
        : StoreTail(d, e[K - 1], y + (K - 1) * lanes, last);
}

// A row that takes more registers than there are: its weights wait in L1, its
// logits where they are.
template <bool Log, class In, class Out>
ONEPASS_FORCED void CachedRow(const In* x, Out* y, size_t cols) {
  HWY_ALIGN float weights[kShortCols + kGrain];
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const State<float> none = identity<float>();
  const State<float> row =
      Log ? FoldTile(d, x, cols, none)
          : FoldTile(d, x, cols, none, weights, [y, lanes](size_t i, auto vectors) ONEPASS_INLINE {
              Fetch<true>(y, (kFetchAhead + i) * sizeof(Out), vectors * lanes * sizeof(Out));
            });
  const bool empty = row.d == 0;
  const V shift = hn::Set(d, empty ? 0.0F : row.m);
  const V last = hn::Set(d, empty ? 0.0F : Log ? std::log(row.d) : 1 / row.d);
  const auto result = [&](size_t i, size_t count) ONEPASS_INLINE {
    if constexpr (Log) {
      const V z = count == lanes ? LoadLanes(d, x + i) : LoadTail(d, x + i, count, 0.0F);
      return hn::Sub(hn::Sub(z, shift), last);
    } else {
      return hn::Mul(hn::Load(d, weights + i), last);
    }
  };
  size_t i = 0;
  for (; i + lanes <= cols; i += lanes) StoreLanes(d, result(i, lanes), y + i);
  if (i < cols) StoreTail(d, result(i, cols - i), y + i, cols - i);
}

template <class In, class Out, class OneRow>
ONEPASS_FORCED void ForEachRow(const RowArgs& args, Team& team, OneRow one_row) {
  const RowSpace& space = args.space;
  const auto cols = static_cast<size_t>(space.cols);
  const int64_t rows = args.end_row - args.first_row;
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 1024);
  const int64_t x_stride = args.logits.x.row_strides[0];
  const int64_t y_stride = args.out.row_strides[0];
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    const int64_t end = args.first_row + std::min(first + block, rows);
    // Rows a stride apart need an address only once.
    for (int64_t row = args.first_row + first, next; row < end; row = next) {
      next = space.rank == 1 ? end : row + 1;
      const In* x = static_cast<const In*>(row_data(space, args.logits.x, row));
      Out* y = static_cast<Out*>(row_data(space, args.out, row));
      for (int64_t i = row; i < next; ++i, x += x_stride, y += y_stride) one_row(x, y, cols);
    }
  }
}

template <bool Log, class In, class Out>
void ShortRows(const RowArgs& args, Team& team) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const auto in_registers = [&]<size_t K>(std::integral_constant<size_t, K>) HWY_ATTR {
    ForEachRow<In, Out>(args, team, [](const In* x, Out* y, size_t cols) ONEPASS_INLINE {
      RegisterRow<Log, K>(x, y, cols);
    });
  };
  const auto in_cache = [&]() HWY_ATTR {
    ForEachRow<In, Out>(args, team, [](const In* x, Out* y, size_t cols) ONEPASS_INLINE {
      CachedRow<Log>(x, y, cols);
    });
  };
  if constexpr (HWY_TARGET == HWY_SCALAR) return in_cache();  // registers of one element
  switch (ceil_div(args.space.cols, static_cast<int64_t>(lanes))) {
    case 0: return;
    case 1: return in_registers(std::integral_constant<size_t, 1>());
    case 2: return in_registers(std::integral_constant<size_t, 2>());
    case 3: return in_registers(std::integral_constant<size_t, 3>());
    case 4: return in_registers(std::integral_constant<size_t, 4>());
    default: return in_cache();
  }
}

void ShortWorker(const RowArgs& args, const CpuLaunch&, Team& team, std::byte*) {
  with_type(args.logits.x.dtype, [&]<class In>(Type<In>) {
    with_type(args.out.dtype, [&]<class Out>(Type<Out>) {
      // The pairs that refuse_long lets through.
      constexpr bool narrow = !std::is_integral_v<In> && sizeof(In) <= 4 &&
                              (std::is_same_v<In, Out> || std::is_same_v<Out, float>);
      if constexpr (narrow) {
        args.op == Op::softmax ? ShortRows<false, In, Out>(args, team)
                               : ShortRows<true, In, Out>(args, team);
      }
    });
  });
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::softmax {

HWY_EXPORT(ShortWorker);

Status cpu_short(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(ShortWorker));
}

}  // namespace onepass::ops::softmax
#endif
