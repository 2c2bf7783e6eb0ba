// Tiles of logits, and their candidates. Per-target.

#if defined(ONEPASS_OPS_TOPK_OFFER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_TOPK_OFFER_INL
#undef ONEPASS_OPS_TOPK_OFFER_INL
#else
#define ONEPASS_OPS_TOPK_OFFER_INL
#endif

#include <hwy/highway.h>

#include <functional>

#include "core/simd/inline.hpp"
#include "ops/row/tile-inl.hpp"
#include "ops/topk/best.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile of a row's logits as T, wherever it lies.
template <class T>
const T* TileOf(const LogitsReader<T>& z, int64_t c, size_t n, Buffers<T>& buffers) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<hn::ScalableTag<T>>;
  const T* tile = nullptr;
  z.with_tile(c, n, buffers, [&](auto* p) ONEPASS_INLINE {
    if constexpr (std::is_same_v<decltype(p), const T*>) {
      tile = p;
    } else {
      Map(d, p, n, buffers.out, [](V v) ONEPASS_INLINE { return v; });
      tile = buffers.out;
    }
  });
  return tile;
}

// Elements of a tile for which f(vector) holds.
template <class T, class F>
HWY_INLINE int64_t CountIf(const T* z, size_t n, F f) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  size_t count = 0;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) count += hn::CountTrue(d, f(hn::LoadU(d, z + i)));
  if (i < n) {
    const auto inside = hn::FirstN(d, n - i);
    const auto v = LoadTail(d, z + i, n - i, T(0));
    count += hn::CountTrue(d, hn::And(inside, f(v)));
  }
  return static_cast<int64_t>(count);
}

// −inf where there is no bound.
template <class T>
T KthLargestBound(const T* z, size_t n, size_t k) {
  const hn::CappedTag<T, 16> d16;  // groups are whole vectors of it
  const size_t groups = groups_of(n, k);
  if (groups == 0) return minus_infinity<T>();
  const size_t lanes = hn::Lanes(d16);
  HWY_ALIGN T largest[kMostGroups];
  const auto none = hn::Set(d16, minus_infinity<T>());
  for (size_t g = 0; g < groups; g += lanes) {
    auto m = none;
    for (size_t i = g; i + groups - g <= n; i += groups) {
      const auto v = hn::LoadU(d16, z + i);
      m = hn::IfThenElse(hn::Gt(v, m), v, m);  // a NaN is not greater
    }
    hn::Store(m, d16, largest + g);
  }
  std::nth_element(largest, largest + (k - 1), largest + groups, std::greater<T>());
  return largest[k - 1];
}

// Offers what lies above the threshold, groups of vectors at a time, and gives the tile's maximum. Where much
// does, a bound of what the tile can have among the K largest keeps out the rest.
template <class T>
T OfferTile(const T* z, size_t n, int64_t first, int64_t k, Best<T>& best) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<hn::ScalableTag<T>>;
  constexpr size_t kVectors = 8;
  const size_t lanes = hn::Lanes(d);
  const auto many = static_cast<size_t>(std::max<int64_t>(k, 64));
  T least = best.threshold();
  bool or_equal = false;  // of a bound, not of the threshold
  size_t offered = 0;
  const auto bound = [&] {
    const T kth = KthLargestBound(z, n, static_cast<size_t>(k));
    or_equal = or_equal || kth > least;
    least = std::max(least, kth);
    offered = 0;
  };
  const auto offer = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (!(or_equal ? z[i] >= least : z[i] > least)) continue;
      best.offer(z[i], first + static_cast<int64_t>(i));
      ++offered;
    }
    if (best.threshold() >= least) {
      least = best.threshold();
      or_equal = false;
    }
    if (offered > many) bound();
  };
  if (least == minus_infinity<T>()) bound();
  const auto passes = [&](V v) HWY_ATTR {
    const V limit = hn::Set(d, least);
    return !hn::AllFalse(d, or_equal ? hn::Ge(v, limit) : hn::Gt(v, limit));
  };
  V tile_max = hn::Set(d, minus_infinity<T>());
  size_t i = 0;
  for (; i + kVectors * lanes <= n; i += kVectors * lanes) {
    V largest = hn::LoadU(d, z + i);
    for (size_t v = 1; v < kVectors; ++v) {
      largest = hn::Max(largest, hn::LoadU(d, z + i + v * lanes));
    }
    tile_max = hn::Max(tile_max, largest);
    if (!passes(largest)) continue;
    for (size_t v = i; v < i + kVectors * lanes; v += lanes) {
      if (passes(hn::LoadU(d, z + v))) offer(v, v + lanes);
    }
  }
  T m = hn::GetLane(hn::MaxOfLanes(d, tile_max));
  for (size_t j = i; j < n; ++j) m = std::max(m, z[j]);
  if (i < n) offer(i, n);
  if (or_equal) best.raise(least);  // now that all of the tile have been offered that count
  return m;
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
