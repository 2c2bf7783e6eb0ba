// The merge at its lowest level: the lanes of a vector, and the vectors of a tile. Per-target.
//
// A tile is short enough to stay in L1, so its maximum is found first and every element is
// exponentiated once, against it. What leaves is one State; tiles, threads and rows then merge
// with the core's merge.

#if defined(ONEPASS_MERGE_LANE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_MERGE_LANE_INL
#undef ONEPASS_MERGE_LANE_INL
#else
#define ONEPASS_MERGE_LANE_INL
#endif

#include <hwy/highway.h>

#include "core/simd/exp-inl.hpp"
#include "core/simd/memory-inl.hpp"
#include "core/state.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Folds f(accumulator, vector) over n elements, four accumulators wide to hide latencies. Lanes
// past the end hold `fill`, which must not change what f folds.
template <class D, class Stored, class F, class Join, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> FoldVectors(D d, const Stored* p, size_t n, T start, T fill, F f, Join join) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> a0 = hn::Set(d, start), a1 = a0, a2 = a0, a3 = a0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a0 = f(a0, Load(d, p + i), i);
    a1 = f(a1, Load(d, p + i + lanes), i + lanes);
    a2 = f(a2, Load(d, p + i + 2 * lanes), i + 2 * lanes);
    a3 = f(a3, Load(d, p + i + 3 * lanes), i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) a0 = f(a0, Load(d, p + i), i);
  if (i < n) a1 = f(a1, LoadTail(d, p + i, n - i, fill), i);
  return join(join(a0, a1), join(a2, a3));
}

template <class D, class Stored>
HWY_INLINE hn::TFromD<D> MaxOf(D d, const Stored* z, size_t n) {
  using V = hn::Vec<D>;
  constexpr auto none = minus_infinity<hn::TFromD<D>>();
  const V m = FoldVectors(
      d, z, n, none, none, [](V a, V v, size_t) HWY_ATTR { return hn::Max(a, v); },
      [](V a, V b) HWY_ATTR { return hn::Max(a, b); });
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

// The state of a tile. `weights`, unless null, receives exp(z − m), whole vectors at a time: it
// needs room for n rounded up to a vector.
template <class D, class Stored, class T = hn::TFromD<D>>
HWY_INLINE State<T> FoldTile(D d, const Stored* z, size_t n, T* weights) {
  using V = hn::Vec<D>;
  const T m = MaxOf(d, z, n);
  const V shift = hn::Set(d, m == minus_infinity<T>() ? T(0) : m);
  const auto join = [](V a, V b) HWY_ATTR { return hn::Add(a, b); };
  const V sum =
      weights == nullptr
          ? FoldVectors(
                d, z, n, T(0), minus_infinity<T>(),
                [d, shift](V a, V v, size_t) HWY_ATTR {
                  return hn::Add(a, ExpOfNonPositive(d, hn::Sub(v, shift)));
                },
                join)
          : FoldVectors(
                d, z, n, T(0), minus_infinity<T>(),
                [d, shift, weights](V a, V v, size_t i) HWY_ATTR {
                  const V e = ExpOfNonPositive(d, hn::Sub(v, shift));
                  hn::StoreU(e, d, weights + i);
                  return hn::Add(a, e);
                },
                join);
  return {m, hn::GetLane(hn::SumOfLanes(d, sum))};
}

// One state a lane: as many rows side by side as a vector has lanes.
template <class V>
struct LaneState {
  V m, d;
};

template <class D>
HWY_INLINE LaneState<hn::Vec<D>> LaneIdentity(D d) {
  return {hn::Set(d, minus_infinity<hn::TFromD<D>>()), hn::Zero(d)};
}

// The −inf guard of the core's rescale, lane by lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FiniteShift(D d, V m) {
  return hn::IfThenZeroElse(hn::Eq(m, hn::Set(d, minus_infinity<hn::TFromD<D>>())), m);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE LaneState<V> Merge(D d, LaneState<V> a, LaneState<V> b) {
  const V m = hn::Max(a.m, b.m);
  const V s = FiniteShift(d, m);
  const V from_a = ExpOfNonPositive(d, hn::Sub(a.m, s));
  const V from_b = ExpOfNonPositive(d, hn::Sub(b.m, s));
  return {m, hn::MulAdd(a.d, from_a, hn::Mul(b.d, from_b))};
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
