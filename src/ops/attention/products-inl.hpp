// The two products of attention, a few rows by a few vectors at a time. Per-target.
//
// A panel is as many query rows as a few vectors have lanes, stored dim by dim: a score then has its row's lane, a
// key's element is the same for all of them, and keys need no order of their own. Weights lie key by key as the
// scores did, sums lie row by row as o does. Accumulators fill the registers, and each element that is loaded
// serves several of them.

#if defined(ONEPASS_OPS_ATTENTION_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_PRODUCTS_INL
#undef ONEPASS_OPS_ATTENTION_PRODUCTS_INL
#else
#define ONEPASS_OPS_ATTENTION_PRODUCTS_INL
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "core/simd/inline.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Of 32 registers 24 can accumulate, of 16 only 12.
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr size_t kPanelVectors = 4;
inline constexpr size_t kSumVectors = 6;
#else
inline constexpr size_t kPanelVectors = 2;
inline constexpr size_t kSumVectors = 3;
#endif
inline constexpr size_t kKeyGroup = 6;  // keys whose scores are made together
inline constexpr size_t kSumRows = 4;   // rows whose sums are

// Calls body with a count as a constant: n of 1 … Most.
template <size_t Most, class Body>
HWY_INLINE void WithCount(size_t n, Body body) {
  if constexpr (Most > 1) {
    if (n < Most) return WithCount<Most - 1>(n, body);
  }
  body(std::integral_constant<size_t, Most>());
}

// scores[t][r] = Σ_j queries[j][r] · keys[t][j], of kKeyGroup keys and the rows of `Vectors` vectors; rows of
// both are `panel` apart.
template <size_t Vectors, class D>
HWY_INLINE void ScoreKeys(D d, const float* HWY_RESTRICT queries, size_t panel,
                          const float* const* HWY_RESTRICT keys, size_t dim,
                          float* HWY_RESTRICT scores) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const float* key[kKeyGroup];
  V sum[kKeyGroup][Vectors];
  for (size_t i = 0; i < kKeyGroup; ++i) {
    key[i] = keys[i];
    for (size_t v = 0; v < Vectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (size_t j = 0; j < dim; ++j) {
    V q[Vectors];
    for (size_t v = 0; v < Vectors; ++v) q[v] = hn::LoadU(d, queries + j * panel + v * lanes);
    for (size_t i = 0; i < kKeyGroup; ++i) {
      const V k = hn::Set(d, key[i][j]);
      for (size_t v = 0; v < Vectors; ++v) sum[i][v] = hn::MulAdd(q[v], k, sum[i][v]);
    }
  }
  for (size_t i = 0; i < kKeyGroup; ++i) {
    for (size_t v = 0; v < Vectors; ++v) {
      hn::StoreU(sum[i][v], d, scores + i * panel + v * lanes);
    }
  }
}

// sums[r][·] = sums[r][·] · by[r] + Σ_t weights[t][r] · values[t][·], of `Rows` rows and `Vectors` vectors of
// their sums, which begin at element `at` of the values. Rows of sums are `padded` apart.
template <size_t Rows, size_t Vectors, class D>
HWY_INLINE void AddValues(D d, const float* HWY_RESTRICT weights, size_t panel,
                          const float* const* HWY_RESTRICT values, size_t keys, size_t at,
                          const float* HWY_RESTRICT by, float* HWY_RESTRICT sums, size_t padded) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V sum[Rows][Vectors];
  for (size_t r = 0; r < Rows; ++r) {
    const V rescaled = hn::Set(d, by[r]);
    for (size_t v = 0; v < Vectors; ++v) {
      sum[r][v] = hn::Mul(hn::LoadU(d, sums + r * padded + at + v * lanes), rescaled);
    }
  }
  for (size_t t = 0; t < keys; ++t) {
    V value[Vectors];
    for (size_t v = 0; v < Vectors; ++v) value[v] = hn::LoadU(d, values[t] + at + v * lanes);
    for (size_t r = 0; r < Rows; ++r) {
      const V weight = hn::Set(d, weights[t * panel + r]);
      for (size_t v = 0; v < Vectors; ++v) sum[r][v] = hn::MulAdd(value[v], weight, sum[r][v]);
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vectors; ++v) {
      hn::StoreU(sum[r][v], d, sums + r * padded + at + v * lanes);
    }
  }
}

// The same for any number of rows and all of their elements.
template <class D>
HWY_INLINE void AddAllValues(D d, const float* weights, size_t panel, size_t rows,
                             const float* const* values, size_t keys, const float* by, float* sums,
                             size_t padded) {
  const size_t vectors = padded / hn::Lanes(d);
  for (size_t v = 0; v < vectors; v += kSumVectors) {
    WithCount<kSumVectors>(std::min(kSumVectors, vectors - v), [=](auto count) ONEPASS_INLINE {
      for (size_t r = 0; r < rows; r += kSumRows) {
        WithCount<kSumRows>(std::min(kSumRows, rows - r), [=](auto few) ONEPASS_INLINE {
          AddValues<few(), count()>(d, weights + r, panel, values, keys, v * hn::Lanes(d), by + r,
                                    sums + r * padded, padded);
        });
      }
    });
  }
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
