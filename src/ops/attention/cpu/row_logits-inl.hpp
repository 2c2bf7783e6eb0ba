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
  if (o.masks != nullptr) {
    for (size_t t = 0; t < count; ++t) {
      const int64_t key = first + static_cast<int64_t>(t);
      scores[t] = o.masks->hides(key) ? hidden : scores[t] + o.masks->template added<T>(key);
    }
  }
  const auto at = [&](int64_t key) {
    return static_cast<size_t>(std::clamp<int64_t>(key - first, 0, static_cast<int64_t>(count)));
  };
  std::fill(scores, scores + at(o.live.begin), hidden);
  std::fill(scores + at(o.live.end), scores + padded, hidden);
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
