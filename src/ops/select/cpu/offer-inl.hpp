// Tiles of logits, and their candidates. Per-target.

#if defined(ONEPASS_OPS_TOPK_OFFER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_TOPK_OFFER_INL
#undef ONEPASS_OPS_TOPK_OFFER_INL
#else
#define ONEPASS_OPS_TOPK_OFFER_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/simd/inline-inl.hpp"
#include "ops/select/cpu/best.hpp"
#include "rows/cpu/tile-inl.hpp"

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
ONEPASS_FORCED int64_t CountIf(const T* z, size_t n, F f) {
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

// The maxima of interleaved groups of elements, each group a lane of a vector or several. A
// NaN is no maximum.
template <class T>
class GroupMaxima {
 public:
  explicit GroupMaxima(size_t groups) : groups_(groups) {
    std::fill_n(largest_, groups, minus_infinity<T>());
  }

  // The next n, a tile of them but for the last time; the last part of a vector is left out.
  void take(const T* z, size_t n) {
    const hn::CappedTag<T, 16> d16;  // groups are whole vectors of it
    const size_t lanes = hn::Lanes(d16);
    T* of_groups = largest_ + (taken_ & (groups_ - 1));  // where tiles are shorter than a round
    for (size_t g = 0; g + lanes <= std::min(groups_, n); g += lanes) {
      auto m = hn::Load(d16, of_groups + g);
      for (size_t i = g; i + lanes <= n; i += groups_) {
        const auto v = hn::LoadU(d16, z + i);
        m = hn::IfThenElse(hn::Gt(v, m), v, m);
      }
      hn::Store(m, d16, of_groups + g);
    }
    taken_ += n;
  }

  T kth(size_t k) {
    std::nth_element(largest_, largest_ + (k - 1), largest_ + groups_, std::greater<T>());
    return largest_[k - 1];
  }

 private:
  HWY_ALIGN T largest_[kMostGroups];
  size_t groups_;
  size_t taken_ = 0;
};

// −inf where there is no bound.
template <class T>
T KthLargestBound(const T* z, size_t n, size_t k) {
  const size_t groups = groups_of(n, k);
  if (groups == 0) return minus_infinity<T>();
  GroupMaxima<T> maxima(groups);
  maxima.take(z, n);
  return maxima.kth(k);
}

// What of a tile is offered: elements from a limit on, which is just above the threshold or, where
// much was offered, a bound of what the tile can have among the K largest.
template <class T>
class Offering {
 public:
  Offering(const T* z, size_t n, int64_t first, int64_t k, Best<T>& best)
      : z_(z), n_(n), first_(first), k_(static_cast<size_t>(k)), best_(best) {
    if (best.threshold() == minus_infinity<T>()) bound();
  }
  // Now that all of the tile have been offered that count.
  ~Offering() {
    if (limit_ > just_above(best_.threshold())) best_.raise(limit_);
  }

  T limit() const { return limit_; }

  HWY_NOINLINE void offer(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (!(z_[i] >= limit_)) continue;
      best_.offer(z_[i], first_ + static_cast<int64_t>(i));
      ++offered_;
    }
    if (best_.threshold() >= limit_) limit_ = just_above(best_.threshold());
    if (offered_ > std::max<size_t>(k_, 64)) bound();
  }

 private:
  static T just_above(T threshold) { return std::nextafter(threshold, -minus_infinity<T>()); }

  void bound() {
    limit_ = std::max(limit_, KthLargestBound(z_, n_, k_));
    offered_ = 0;
  }

  const T* z_;
  size_t n_;
  int64_t first_;
  size_t k_;
  Best<T>& best_;
  T limit_ = just_above(best_.threshold());
  size_t offered_ = 0;
};

// Offers a tile's elements, groups of vectors at a time, and gives its maximum.
template <class T>
T OfferTile(const T* z, size_t n, int64_t first, int64_t k, Best<T>& best) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<hn::ScalableTag<T>>;
  constexpr size_t kParts = 4;    // of a group, whose maxima are as many chains
  constexpr size_t kVectors = 4;  // of a part
  const size_t lanes = hn::Lanes(d);
  Offering<T> offering(z, n, first, k, best);
  V limit = hn::Set(d, offering.limit());
  V tile_max = hn::Set(d, minus_infinity<T>());
  size_t i = 0;
  for (; i + kParts * kVectors * lanes <= n; i += kParts * kVectors * lanes) {
    V part[kParts];
    for (size_t p = 0; p < kParts; ++p) part[p] = hn::LoadU(d, z + i + p * kVectors * lanes);
    for (size_t v = 1; v < kVectors; ++v) {
      for (size_t p = 0; p < kParts; ++p) {
        part[p] = hn::Max(part[p], hn::LoadU(d, z + i + (p * kVectors + v) * lanes));
      }
    }
    const V largest = hn::Max(hn::Max(part[0], part[1]), hn::Max(part[2], part[3]));
    tile_max = hn::Max(tile_max, largest);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Ge(largest, limit)))) continue;
    for (size_t p = 0; p < kParts; ++p) {
      if (hn::AllFalse(d, hn::Ge(part[p], limit))) continue;
      offering.offer(i + p * kVectors * lanes, i + (p + 1) * kVectors * lanes);
    }
    limit = hn::Set(d, offering.limit());
  }
  T m = hn::GetLane(hn::MaxOfLanes(d, tile_max));
  for (size_t j = i; j < n; ++j) m = std::max(m, z[j]);
  if (i < n) offering.offer(i, n);
  return m;
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
