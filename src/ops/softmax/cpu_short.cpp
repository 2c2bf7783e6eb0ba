// softmax/cpu_short: rows of a few vectors.
//
// Idea    in a row of 32 elements the arithmetic takes as long as finding out what to do; here that
//         is found out once for all rows, and the loop holds nothing but loads, exp and stores.
// Versus  cpu_row: the same fold of one tile, without options, ranges, tiles or dtype switches.
// Bytes   x once and y once.
// Limits  softmax without options, dense rows, at most kShortCols elements, computed in float32.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/cpu_short.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "merge/lane-inl.hpp"
#include "ops/limits.hpp"
#include "ops/row/layout.hpp"
#include "ops/row/run.hpp"
#include "ops/softmax/variants.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class In, class Out>
HWY_INLINE void ShortRow(const In* x, Out* y, size_t cols, float* weights) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const State<float> row = FoldTile(d, x, cols, weights);
  const V factor = hn::Set(d, row.d == 0 ? 0.0F : 1 / row.d);
  size_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    StoreAs(d, hn::Mul(hn::Load(d, weights + i), factor), y + i);
  }
  if (i < cols) StoreTail(d, hn::Mul(hn::Load(d, weights + i), factor), y + i, cols - i);
}

template <class In, class Out>
void ShortRows(const RowArgs& args, Team& team) {
  HWY_ALIGN float weights[kShortCols + kGrain];
  const RowSpace& space = args.space;
  const auto cols = static_cast<size_t>(space.cols);
  const int64_t rows = args.end_row - args.first_row;
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 1024);
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    for (int64_t r = first; r < std::min(first + block, rows); ++r) {
      const int64_t row = args.first_row + r;
      ShortRow(static_cast<const In*>(row_data(space, args.logits.x, row)),
               static_cast<Out*>(row_data(space, args.out, row)), cols, weights);
    }
  }
}

void ShortWorker(const RowArgs& args, const Plan&, Team& team, std::byte*) {
  with_type(args.logits.x.dtype, [&]<class In>(Type<In>) {
    with_type(args.out.dtype, [&]<class Out>(Type<Out>) {
      constexpr bool narrow = !std::is_integral_v<In> && !std::is_integral_v<Out> &&
                              sizeof(In) <= 4 && sizeof(Out) <= 4;
      if constexpr (narrow) ShortRows<In, Out>(args, team);
    });
  });
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::softmax {

HWY_EXPORT(ShortWorker);

Status cpu_short(const RowArgs& args, const Plan& plan) {
  return run_workers(args, plan, HWY_DYNAMIC_DISPATCH(ShortWorker));
}

}  // namespace onepass::ops::softmax
#endif
