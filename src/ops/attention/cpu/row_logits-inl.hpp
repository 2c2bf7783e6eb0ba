// z of one query at a block of keys, whose lanes are keys: every option of attention. Per-target.

#if defined(ONEPASS_OPS_ATTENTION_ROW_LOGITS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_ROW_LOGITS_INL
#undef ONEPASS_OPS_ATTENTION_ROW_LOGITS_INL
#else
#define ONEPASS_OPS_ATTENTION_ROW_LOGITS_INL
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>

#include "core/simd/inline-inl.hpp"
#include "ops/attention/logit.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What makes z of a query's scores.
template <class T>
struct RowOptions {
  T scale = 1;
  T cap = 0;
  T slope = 0;
  int64_t own = 0;                    // the key that the query stands at
  Keys live{};                        // the keys that it sees
  const QueryMasks* masks = nullptr;  // null: no tensor masks
};

// Calls body(t, element) for `count` elements, a stride apart. A stride that is known to be 1 makes
// vectors of them.
template <class Stored, class Body>
ONEPASS_FORCED void ForElements(const Stored* p, int64_t stride, size_t count, Body body) {
  if (stride == 1) {
    for (size_t t = 0; t < count; ++t) body(t, p[t]);
  } else {
    for (size_t t = 0; t < count; ++t) body(t, p[static_cast<int64_t>(t) * stride]);
  }
}

// The tensor masks of a query, at `count` keys from `first` on.
template <class T>
HWY_NOINLINE void AddMasks(const QueryMasks& masks, int64_t first, size_t count,
                           T* HWY_RESTRICT scores) {
  if (const Heads& m = masks.additive; m) {
    with_type_for<T>(m.dtype, [&]<class Stored>(Type<Stored>) HWY_ATTR {
      const Stored* p = static_cast<const Stored*>(m.data) + first * m.key;
      ForElements(p, m.key, count,
                  [=](size_t t, Stored x) ONEPASS_INLINE { scores[t] += load_as<T>(x); });
    });
  }
  if (const Heads& m = masks.boolean; m) {
    const auto* p = static_cast<const std::uint8_t*>(m.data) + first * m.key;
    ForElements(p, m.key, count, [=](size_t t, std::uint8_t keep) ONEPASS_INLINE {
      scores[t] = keep == 0 ? minus_infinity<T>() : scores[t];
    });
  }
}

// The scores of `count` keys from `first` on become z; those up to `padded`, whole vectors, −inf.
// `steep`, if not null, receives softcap's derivative.
template <class D, class T = hn::TFromD<D>>
ONEPASS_FORCED void MakeRowLogits(D d, const RowOptions<T>& o, int64_t first, size_t count,
                                  size_t padded, T* HWY_RESTRICT scores, T* HWY_RESTRICT steep) {
  constexpr T hidden = minus_infinity<T>();
  const auto scale = hn::Set(d, o.scale);
  const auto cap = hn::Set(d, o.cap);
  for (size_t t = 0; t < count; t += hn::Lanes(d)) {
    auto z = hn::Mul(hn::LoadU(d, scores + t), scale);
    if (o.cap > 0) {
      const auto tanh = hn::Tanh(d, hn::Div(z, cap));
      z = hn::Mul(cap, tanh);
      if (steep != nullptr) hn::StoreU(hn::NegMulAdd(tanh, tanh, hn::Set(d, T(1))), d, steep + t);
    }
    hn::StoreU(z, d, scores + t);
  }
  if (o.slope != 0) {
    for (size_t t = 0; t < count; ++t) {
      scores[t] -= o.slope * static_cast<T>(std::abs(first + static_cast<int64_t>(t) - o.own));
    }
  }
  if (o.masks != nullptr) AddMasks(*o.masks, first, count, scores);
  const auto at = [&](int64_t key) {
    return static_cast<size_t>(std::clamp<int64_t>(key - first, 0, static_cast<int64_t>(count)));
  };
  std::fill(scores, scores + at(o.live.begin), hidden);
  std::fill(scores + at(o.live.end), scores + padded, hidden);
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
