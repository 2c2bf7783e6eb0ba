// From the scores of a panel to weights: every option of attention, and the fold. Per-target.

#if defined(ONEPASS_OPS_ATTENTION_PANEL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_PANEL_INL
#undef ONEPASS_OPS_ATTENTION_PANEL_INL
#else
#define ONEPASS_OPS_ATTENTION_PANEL_INL
#endif

#include <algorithm>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What makes z of a panel's scores of a block. Null: there is no such option. Keys count from the
// block's first; a value per row, or one a key and row, as the scores lie.
template <class T>
struct PanelOptions {
  T scale = 1;
  T cap = 0;
  const T* slopes = nullptr;  // with own: the key that a row stands at
  const T* own = nullptr;
  const T* begins = nullptr;  // with ends: the keys that a row sees
  const T* ends = nullptr;
  const T* additive = nullptr;
  const T* keep = nullptr;

  bool plain() const {
    return cap == 0 && slopes == nullptr && begins == nullptr && additive == nullptr &&
           keep == nullptr;
  }
};

// z of a vector of rows at one key.
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
ONEPASS_FORCED V Logit(D d, V score, const PanelOptions<T>& o, T key, size_t row, size_t cell) {
  const V hidden = hn::Set(d, minus_infinity<T>());
  const V t = hn::Set(d, key);
  V z = hn::Mul(score, hn::Set(d, o.scale));
  if (o.cap > 0) {
    const V cap = hn::Set(d, o.cap);
    z = hn::Mul(cap, hn::Tanh(d, hn::Div(z, cap)));
  }
  if (o.slopes != nullptr) {
    const V distance = hn::Abs(hn::Sub(t, hn::LoadU(d, o.own + row)));
    z = hn::NegMulAdd(hn::LoadU(d, o.slopes + row), distance, z);
  }
  if (o.additive != nullptr) z = hn::Add(z, hn::LoadU(d, o.additive + cell));
  if (o.begins != nullptr) {
    const auto seen =
        hn::And(hn::Ge(t, hn::LoadU(d, o.begins + row)), hn::Lt(t, hn::LoadU(d, o.ends + row)));
    z = hn::IfThenElse(seen, z, hidden);
  }
  if (o.keep != nullptr) {
    z = hn::IfThenElse(hn::Eq(hn::LoadU(d, o.keep + cell), hn::Zero(d)), hidden, z);
  }
  return z;
}

// Scores become z, and `m` the largest of each row.
template <bool Plain, size_t Vectors, class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
ONEPASS_FORCED void MakeLogits(D d, const PanelOptions<T>& options, size_t panel, size_t keys,
                               T* HWY_RESTRICT scores, V (&m)[Vectors]) {
  const size_t lanes = hn::Lanes(d);
  const V scale = hn::Set(d, options.scale);
  for (V& each : m) each = hn::Set(d, minus_infinity<T>());
  for (size_t t = 0; t < keys; ++t) {
    for (size_t v = 0; v < Vectors; ++v) {
      const size_t cell = t * panel + v * lanes;
      V z = hn::LoadU(d, scores + cell);
      if constexpr (Plain) {
        z = hn::Mul(z, scale);
      } else {
        z = Logit(d, z, options, static_cast<T>(t), v * lanes, cell);
      }
      m[v] = MaxOrNaN(d, m[v], z);
      hn::StoreU(z, d, scores + cell);
    }
  }
}

// Keys whose weights are summed before they are added to what came before.
inline constexpr size_t kRunKeys = 8;

// z become weights against the largest so far. The states of the rows take them in; `by` is what
// the rows' sums shrink by. Weights are summed in runs, since one by one those below half an ulp of
// the sum so far would be lost. `skew` is how many keys of the first run come before the block: a
// row's runs do not depend on where its block begins.
template <size_t Vectors, class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
ONEPASS_FORCED void FoldPanel(D d, size_t panel, size_t keys, size_t skew,
                              const V (&block_m)[Vectors], T* HWY_RESTRICT z, T* HWY_RESTRICT m,
                              T* HWY_RESTRICT sum, T* HWY_RESTRICT by) {
  const size_t lanes = hn::Lanes(d);
  V shift[Vectors];
  V added[Vectors];
  for (size_t v = 0; v < Vectors; ++v) {
    LaneState<V> state{hn::LoadU(d, m + v * lanes), hn::LoadU(d, sum + v * lanes)};
    const V larger = MaxOrNaN(d, state.m, block_m[v]);
    hn::StoreU(RaiseTo(d, larger, state), d, by + v * lanes);
    hn::StoreU(state.m, d, m + v * lanes);
    hn::StoreU(state.d, d, sum + v * lanes);
    shift[v] = FiniteShift(d, larger);
    added[v] = hn::Zero(d);
  }
  for (size_t t = 0; t < keys;) {
    const size_t end = std::min(keys, t + kRunKeys - (skew + t) % kRunKeys);
    V run[Vectors];
    for (V& each : run) each = hn::Zero(d);
    for (; t < end; ++t) {
      V weight[Vectors];
      for (size_t v = 0; v < Vectors; ++v) {
        weight[v] = hn::Sub(hn::LoadU(d, z + t * panel + v * lanes), shift[v]);
      }
      ExpOfNonPositive(d, weight);
      for (size_t v = 0; v < Vectors; ++v) {
        run[v] = hn::Add(run[v], weight[v]);
        hn::StoreU(weight[v], d, z + t * panel + v * lanes);
      }
    }
    for (size_t v = 0; v < Vectors; ++v) added[v] = hn::Add(added[v], run[v]);
  }
  for (size_t v = 0; v < Vectors; ++v) {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + v * lanes), added[v]), d, sum + v * lanes);
  }
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
