// The merge at its lowest level: the lanes of a vector, and the vectors of a tile. Per-target.
//
// A tile is short enough to stay in L1, so its maximum is found first and every element is
// exponentiated once, against it. The result is one State; tiles, threads and rows then merge with
// the core's merge. A long stretch of a row can do without the maximum: see WeighStreams.

#if defined(ONEPASS_MERGE_LANE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_MERGE_LANE_INL
#undef ONEPASS_MERGE_LANE_INL
#else
#define ONEPASS_MERGE_LANE_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "core/long_state.hpp"
#include "core/simd/exp-inl.hpp"
#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Combines the vectors of a pack into one.
template <class V, size_t K, class Join>
ONEPASS_FORCED V JoinPack(const V (&pack)[K], Join join) {
  V all = pack[0];
  for (size_t k = 1; k < K; ++k) all = join(all, pack[k]);
  return all;
}

template <class D, class Stored>
ONEPASS_FORCED hn::TFromD<D> MaxOf(D d, const Stored* z, size_t n) {
  using V = hn::Vec<D>;
  constexpr auto none = minus_infinity<hn::TFromD<D>>();
  V m[kPack];
  for (V& v : m) v = hn::Set(d, none);
  ForEachPack(d, AnyOrder(z), n, none, [&m](auto& v, size_t) ONEPASS_INLINE {
    for (size_t k = 0; k < std::size(v); ++k) m[k] = hn::Max(m[k], v[k]);
  });
  const V all = JoinPack(m, [](V a, V b) ONEPASS_INLINE { return hn::Max(a, b); });
  return hn::GetLane(hn::MaxOfLanes(d, all));
}

template <class V, size_t K>
ONEPASS_FORCED V SumOfPack(const V (&pack)[K]) {
  return JoinPack(pack, [](V a, V b) ONEPASS_INLINE { return hn::Add(a, b); });
}

// Σ f(v), where f turns a pack in place into its terms; f(fill) must be 0. A long run of equal
// terms would round the same way at every step, so packs are summed in short runs. Tiles of
// hundreds of packs and float64 tiles, both rare, use compensated sums.
template <class D, class Stored, class F, class T = hn::TFromD<D>>
ONEPASS_FORCED T SumOf(D d, const Stored* p, size_t n, T fill, F f) {
  using V = hn::Vec<D>;
  constexpr size_t kRun = 8;
  constexpr bool kKeepsLost = sizeof(T) == 8 || hn::MaxLanes(D()) == 1;
  V sum = hn::Zero(d);
  V run = hn::Zero(d);  // or what was lost
  size_t packs = 0;
  ForEachPack(d, p, n, fill, [&](auto& v, size_t i) ONEPASS_INLINE {
    f(v, i);
    const V pack = SumOfPack(v);
    if constexpr (kKeepsLost) {
      const V total = hn::Add(sum, pack);
      const V kept = hn::Sub(total, pack);  // of sum; Knuth's two-sum
      run = hn::Add(run, hn::Add(hn::Sub(sum, kept), hn::Sub(pack, hn::Sub(total, kept))));
      sum = total;
    } else {
      run = hn::Add(run, pack);
      if (++packs % kRun != 0) return;
      sum = hn::Add(sum, run);
      run = hn::Zero(d);
    }
  });
  const V total = hn::Add(sum, run);
  // An infinite sum leaves NaN in what it lost.
  return hn::GetLane(
      hn::SumOfLanes(d, kKeepsLost ? hn::IfThenElse(hn::IsInf(sum), sum, total) : total));
}

// The prefetch distance of the exponentials, in elements: two tiles of a long row, or the next rows
// if they are short.
inline constexpr size_t kFetchAhead = 2048;

// exp, as exact as the stored type needs.
template <class Stored, class D, class V, size_t K>
ONEPASS_FORCED void ExpOf(D d, V (&v)[K]) {
  if constexpr (std::is_same_v<Stored, PairedBF16>) {
    ExpOfShort(d, v);
  } else {
    ExpOfNonPositive(d, v);
  }
}

// v = exp(v − shift) for a pack that was loaded from z. Prefetches the next elements, because the
// arithmetic alone would leave the memory idle.
template <class D, class Stored, class V, size_t K>
ONEPASS_FORCED void ExpPack(D d, const Stored* z, V shift, V (&v)[K]) {
  Fetch(z, kFetchAhead * sizeof(Stored), K * hn::Lanes(d) * sizeof(Stored));
  for (V& each : v) each = hn::Sub(each, shift);
  ExpOf<Stored>(d, v);
}

// out = exp(z − shift), whole vectors at a time: out needs room for n rounded up to a vector.
template <class D, class Stored, class T = hn::TFromD<D>>
ONEPASS_FORCED void ExpTile(D d, const Stored* z, size_t n, hn::Vec<D> shift, T* out) {
  const size_t lanes = hn::Lanes(d);
  ForEachPack(d, z, n, minus_infinity<T>(), [=](auto& v, size_t i) ONEPASS_INLINE {
    ExpPack(d, z + i, shift, v);
    for (size_t k = 0; k < std::size(v); ++k) hn::StoreU(v[k], d, out + i + k * lanes);
  });
}

// merge for a maximum that never falls. Mostly it stays the same, and nothing is rescaled.
template <class T>
ONEPASS_FORCED State<T> Raise(State<T> row, State<T> tile) {
  return row.m == tile.m ? State<T>{row.m, row.d + tile.d} : merge(row, tile);
}
template <class T>
ONEPASS_FORCED LongState Raise(const LongState& row, State<T> tile) {
  return merge(row, LongState(tile));
}

// The maximum that a tile is weighed against, given the row so far.
template <class T>
ONEPASS_FORCED T Reference(State<T> row, T tile_max) {
  return std::max(row.m, tile_max);
}
template <class T>
ONEPASS_FORCED T Reference(const LongState& row, T tile_max) {
  const T m = static_cast<T>(row.m);
  return tile_max > m + T(LongState::kSlack) ? tile_max : m;
}

// FoldTile for a known maximum of the tile.
template <class D, class Stored, class Row, class T = hn::TFromD<D>>
ONEPASS_FORCED Row FoldBelow(D d, const Stored* z, size_t n, Row row, T tile_max) {
  const T m = Reference(row, tile_max);
  const hn::Vec<D> by = hn::Set(d, shift(m));
  const auto* any = AnyOrder(z);
  const T sum = SumOf(d, any, n, minus_infinity<T>(),
                      [=](auto& v, size_t i) ONEPASS_INLINE { ExpPack(d, any + i, by, v); });
  return Raise(row, State<T>{m, sum});
}

// The state of `row`, the state of the elements so far, and a tile. The tile is weighed against the
// maximum of both and needs no rescaling; the row needs it only if the maximum rises. `Row` is a
// State, or a LongState for many tiles.
template <class D, class Stored, class Row>
ONEPASS_FORCED Row FoldTile(D d, const Stored* z, size_t n, Row row) {
  return FoldBelow(d, z, n, row, MaxOf(d, z, n));
}

// Σ exp(z), where exp(v, i) turns a pack from element i on into its weights, which are written to
// `weights`. Before each write it calls alongside(i, vectors), with a constant number of vectors,
// for other memory work, since the exponentials leave the memory idle.
template <class D, class Stored, class Exp, class Alongside, class T = hn::TFromD<D>>
ONEPASS_FORCED T WeighTile(D d, const Stored* z, size_t n, Exp exp, T* weights,
                           Alongside alongside) {
  const size_t lanes = hn::Lanes(d);
  return SumOf(d, z, n, minus_infinity<T>(), [=](auto& v, size_t i) ONEPASS_INLINE {
    constexpr size_t kVectors = std::extent_v<std::remove_reference_t<decltype(v)>>;
    exp(v, i);
    alongside(i, std::integral_constant<size_t, kVectors>());
    if (kVectors == 1 && n - i < lanes) return StoreTail(d, v[0], weights + i, n - i);
    for (size_t k = 0; k < kVectors; ++k) hn::StoreU(v[k], d, weights + i + k * lanes);
  });
}

// FoldTile that keeps the weights.
template <class D, class Stored, class Row, class Alongside, class T = hn::TFromD<D>>
ONEPASS_FORCED Row FoldTile(D d, const Stored* z, size_t n, Row row, T* weights,
                            Alongside alongside) {
  const T m = Reference(row, MaxOf(d, z, n));
  const hn::Vec<D> by = hn::Set(d, shift(m));
  const auto exp = [=](auto& v, size_t i) ONEPASS_INLINE { ExpPack(d, z + i, by, v); };
  return Raise(row, State<T>{m, WeighTile(d, z, n, exp, weights, alongside)});
}

// exp(z − reference) of elements that may be above the reference. An element more than kMostAbove
// above it gives about exp(kMostAbove), or more. kMostAbove is small because a difference is
// rounded, and a larger one costs the weight more digits. The reference must not be −inf; +inf
// gives NaN.
inline constexpr int kMostAbove = 32;

template <class D, class Stored>
class ExpAround {
  using V = hn::Vec<D>;

 public:
  ExpAround(D d, hn::TFromD<D> reference) : shift_(hn::Set(d, reference)) {}

  template <size_t K>
  ONEPASS_FORCED void operator()(V (&v)[K], size_t) const {
    const D d;
    for (V& each : v) each = NoMore(d, hn::Sub(each, shift_), kMostAbove);
    ExpOf<Stored>(d, v);
  }

 private:
  V shift_;
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Computed as 2^(z·log2 e − shift), with one rounding for both. The error of the rounded shift is a
// factor common to all weights, far from 1 only if the reference is huge.
template <class D>
class ExpAround<D, PairedBF16> {
  using V = hn::Vec<D>;

 public:
  ExpAround(D d, float reference)
      : log2e_(hn::Set(d, ExpConstants<float>::log2e)),
        shift_(hn::Mul(hn::Set(d, reference), log2e_)) {}

  template <size_t K>
  ONEPASS_FORCED void operator()(V (&v)[K], size_t) const {
    for (V& each : v) each = hn::MulSub(each, log2e_, shift_);
    Exp2(D(), v);
  }

 private:
  V log2e_, shift_;
};
#endif

// WeighTile of a long stretch of whole packs, read as `streams` equal streams at once, because
// memory delivers more to several streams than to one. Sums of equal weights would drift, so short
// sums are added up in double.
template <class D, class Stored, class Exp, class Alongside, class T = hn::TFromD<D>>
ONEPASS_FORCED double WeighStreams(D d, const Stored* z, size_t n, size_t streams, Exp exp,
                                   T* weights, Alongside alongside) {
  // In bytes. Short, so that the lines of one stream do not evict another's.
  const size_t ahead = streams > 1 ? 256 : 2048;
  constexpr size_t kPacks = 32;  // summed together in float
  const size_t lanes = hn::Lanes(d);
  const size_t step = kPack * lanes;
  const size_t apart = n / streams;
  double total = 0;
  size_t i = 0;
  for (size_t left = n; left > 0;) {
    hn::Vec<D> sum = hn::Zero(d);
    const size_t end = left - HWY_MIN(left, kPacks * step);
    for (; left > end; left -= step) {
      hn::Vec<D> v[kPack];
      LoadPack(d, z + i, v);
      Fetch(z + i, ahead, step * sizeof(Stored));
      exp(v, i);
      alongside(i, std::integral_constant<size_t, kPack>());
      for (size_t k = 0; k < kPack; ++k) hn::StoreU(v[k], d, weights + i + k * lanes);
      sum = hn::Add(sum, SumOfPack(v));
      i += apart;
      if (i >= n) i -= n - step;
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

// One state per lane, for as many rows side by side as a vector has lanes.
template <class V>
struct LaneState {
  V m, d;
};

template <class D>
ONEPASS_FORCED LaneState<hn::Vec<D>> LaneIdentity(D d) {
  return {hn::Set(d, minus_infinity<hn::TFromD<D>>()), hn::Zero(d)};
}

// The −inf guard of the core's rescale, lane by lane.
template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED V FiniteShift(D d, V m) {
  return hn::IfThenZeroElse(hn::Eq(m, hn::Set(d, minus_infinity<hn::TFromD<D>>())), m);
}

template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED LaneState<V> Merge(D d, LaneState<V> a, LaneState<V> b) {
  const V m = hn::Max(a.m, b.m);
  const V s = FiniteShift(d, m);
  const V from_a = ExpOfNonPositive(d, hn::Sub(a.m, s));
  const V from_b = ExpOfNonPositive(d, hn::Sub(b.m, s));
  return {m, hn::MulAdd(a.d, from_a, hn::Mul(b.d, from_b))};
}

// Rescales lanes to maxima that are no smaller than their own. Returns the factor, for the sums of
// a payload.
template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED V RaiseTo(D d, V m, LaneState<V>& lanes) {
  const V by = ExpOfNonPositive(d, hn::Sub(lanes.m, FiniteShift(d, m)));
  lanes = {m, hn::Mul(lanes.d, by)};
  return by;
}

// The maximum, in which a NaN counts as the largest. (Highway's Max of a NaN depends on the CPU.)
template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED V MaxOrNaN(D, V m, V x) {
#if HWY_TARGET == HWY_NEON
  return hn::Max(m, x);
#else
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Gt(x, m)), x, m);
#endif
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
