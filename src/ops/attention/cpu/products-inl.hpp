// The two products of attention, a few rows by a few vectors at a time. Per-target.
//
// A panel is as many query rows as a few vectors have lanes, stored dim by dim: a score then has
// its row's lane, a key's element is the same for all of them, and keys need no order of their own.
// Weights lie key by key as the scores did, sums lie row by row as o does. Accumulators fill the
// registers, and each element that is loaded serves several of them.

#if defined(ONEPASS_OPS_ATTENTION_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_PRODUCTS_INL
#undef ONEPASS_OPS_ATTENTION_PRODUCTS_INL
#else
#define ONEPASS_OPS_ATTENTION_PRODUCTS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "core/simd/inline-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Of 32 registers 24 accumulate at most, of 16 only 10 or so: what is loaded needs the others, and
// one accumulator that does not fit waits for memory in every step.
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr size_t kPanelVectors = 4;
inline constexpr size_t kAccumulators = 24;
inline constexpr size_t kSumRows = 8;  // rows whose sums are made together
#else
inline constexpr size_t kPanelVectors = 2;
inline constexpr size_t kAccumulators = 10;
inline constexpr size_t kSumRows = 4;
#endif

// Six rows of four vectors fill the accumulators with the fewest loads per sum.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kSumSixes = true;
#else
inline constexpr bool kSumSixes = false;
#endif

// Keys whose scores are made together: of few rows more, so that enough accumulate.
inline constexpr size_t kMostKeyGroup = 10;
template <size_t Vectors>
inline constexpr size_t kKeyGroup = 2 * Vectors <= kPanelVectors ? kMostKeyGroup : 5;

template <size_t N>
using Constant = std::integral_constant<size_t, N>;

// Calls body with a count as a constant: n of 1 … Most.
template <size_t Most, class Body>
ONEPASS_FORCED void WithCount(size_t n, Body body) {
  if constexpr (Most > 1) {
    if (n < Most) return WithCount<Most - 1>(n, body);
  }
  body(Constant<Most>());
}

// Four neighbours in memory, each of which is a factor of whole vectors. Arm multiplies by a lane,
// so that one load brings all four; x86 loads and spreads one in a step.
template <class D>
class FourFactors {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  ONEPASS_FORCED FourFactors(D, const T* p) : p_(p) {}
  template <size_t Lane>
  ONEPASS_FORCED V at(D d, Constant<Lane>) const {
    return hn::Set(d, p_[Lane]);
  }

 private:
  const T* p_;
};
#if HWY_TARGET == HWY_NEON
template <>
class FourFactors<hn::ScalableTag<float>> {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

 public:
  ONEPASS_FORCED FourFactors(D d, const float* p) : four_(hn::LoadU(d, p)) {}
  template <size_t Lane>
  ONEPASS_FORCED V at(D, Constant<Lane>) const {
    return hn::Broadcast<static_cast<int>(Lane)>(four_);
  }

 private:
  V four_;
};
#endif

template <class Body>
ONEPASS_FORCED void ForFour(Body body) {
  body(Constant<0>());
  body(Constant<1>());
  body(Constant<2>());
  body(Constant<3>());
}

// scores[t][r] = Σ_j queries[j][r] · keys[t][j], of a group of keys and the rows of `Vectors`
// vectors. Rows of the queries are `panel` apart, those of the scores `apart`.
template <size_t Vectors, class D, class T = hn::TFromD<D>>
ONEPASS_FORCED void ScoreKeys(D d, const T* HWY_RESTRICT queries, size_t panel,
                              const T* const* HWY_RESTRICT keys, size_t dim, T* HWY_RESTRICT scores,
                              size_t apart) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kKeys = kKeyGroup<Vectors>;
  const T* key[kKeys];
  V sum[kKeys][Vectors];
  for (size_t i = 0; i < kKeys; ++i) {
    key[i] = keys[i];
    for (V& each : sum[i]) each = hn::Zero(d);
  }
  for (size_t j = 0; j < dim; ++j) {
    V q[Vectors];
    for (size_t v = 0; v < Vectors; ++v) q[v] = hn::LoadU(d, queries + j * panel + v * lanes);
    for (size_t i = 0; i < kKeys; ++i) {
      const V k = hn::Set(d, key[i][j]);
      for (size_t v = 0; v < Vectors; ++v) sum[i][v] = hn::MulAdd(q[v], k, sum[i][v]);
    }
  }
  for (size_t i = 0; i < kKeys; ++i) {
    for (size_t v = 0; v < Vectors; ++v) {
      hn::StoreU(sum[i][v], d, scores + i * apart + v * lanes);
    }
  }
}

// The same for a single row, whose lanes run along the dim: rows of `padded` elements, with zeros
// past the last. Scores of up to kRowGroup − 1 keys past the last are written, too.
inline constexpr size_t kRowGroup = 8;

template <class D, class T = hn::TFromD<D>>
ONEPASS_FORCED void ScoreRow(D d, const T* HWY_RESTRICT query, const T* const* HWY_RESTRICT keys,
                             size_t count, size_t padded, T* HWY_RESTRICT scores) {
  using V = hn::Vec<D>;
  for (size_t t = 0; t < count; t += kRowGroup) {
    V sum[kRowGroup];
    for (V& each : sum) each = hn::Zero(d);
    for (size_t j = 0; j < padded; j += hn::Lanes(d)) {
      const V q = hn::LoadU(d, query + j);
      for (size_t i = 0; i < kRowGroup; ++i) {
        sum[i] = hn::MulAdd(q, hn::LoadU(d, keys[t + i] + j), sum[i]);
      }
    }
    for (size_t i = 0; i < kRowGroup; ++i) {
      scores[t + i] = hn::GetLane(hn::SumOfLanes(d, sum[i]));
    }
  }
}

// sums[r][·] = sums[r][·] · by[r] + Σ_t weights[t][r] · values[t][·], of `Rows` rows and
// `Vectors` vectors of their sums, which begin at element `at` of the values. Rows of sums
// are `padded` apart. With ByRow weights lie row by row: weights[r][t].
template <bool ByRow, size_t Rows, size_t Vectors, class D, class T = hn::TFromD<D>>
ONEPASS_FORCED void AddValues(D d, const T* HWY_RESTRICT weights, size_t panel,
                              const T* const* HWY_RESTRICT values, size_t keys, size_t at,
                              const T* HWY_RESTRICT by, T* HWY_RESTRICT sums, size_t padded) {
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
    const auto add = [&](size_t r, V weight) ONEPASS_INLINE {
      for (size_t v = 0; v < Vectors; ++v) sum[r][v] = hn::MulAdd(value[v], weight, sum[r][v]);
    };
    if constexpr (ByRow) {
      for (size_t r = 0; r < Rows; ++r) add(r, hn::Set(d, weights[r * panel + t]));
    } else if constexpr (Rows % 4 != 0) {
      for (size_t r = 0; r < Rows; ++r) add(r, hn::Set(d, weights[t * panel + r]));
    } else {
      for (size_t r = 0; r < Rows; r += 4) {
        const FourFactors<D> four(d, weights + t * panel + r);
        ForFour([&](auto lane) ONEPASS_INLINE { add(r + lane(), four.at(d, lane)); });
      }
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vectors; ++v) {
      hn::StoreU(sum[r][v], d, sums + r * padded + at + v * lanes);
    }
  }
}

// The same for all elements of `Rows` rows.
template <size_t Rows, bool ByRow = false, class D, class T = hn::TFromD<D>>
ONEPASS_FORCED void AddToRows(D d, const T* weights, size_t panel, const T* const* values,
                              size_t keys, const T* by, T* sums, size_t padded) {
  constexpr size_t kMost = std::min<size_t>(8, kAccumulators / Rows);
  const size_t lanes = hn::Lanes(d);
  size_t left = padded / lanes;
  for (size_t groups = (left + kMost - 1) / kMost; groups > 0; --groups) {
    const size_t at = padded - left * lanes;
    const size_t vectors = left / groups;  // as even as can be
    WithCount<kMost>(vectors, [=](auto count) ONEPASS_INLINE {
      AddValues<ByRow, Rows, count()>(d, weights, panel, values, keys, at, by, sums, padded);
    });
    left -= vectors;
  }
}

// The same for any number of rows. More than one are made to be a multiple of four: the last vector
// of a panel has lanes enough, and the sums have rows.
template <bool ByRow = false, class D, class T = hn::TFromD<D>>
ONEPASS_FORCED void AddAllValues(D d, const T* weights, size_t panel, size_t rows,
                                 const T* const* values, size_t keys, const T* by, T* sums,
                                 size_t padded) {
  const auto add = [=](size_t r, auto few) ONEPASS_INLINE {
    AddToRows<few(), ByRow>(d, weights + (ByRow ? r * panel : r), panel, values, keys, by + r,
                            sums + r * padded, padded);
  };
  size_t r = 0;
  if (rows > 1 && hn::Lanes(d) >= 4) {
    if constexpr (kSumSixes) {
      for (; padded / hn::Lanes(d) % 4 == 0 && r + 8 < rows; r += 12) {
        add(r, Constant<6>());
        add(r + 6, Constant<6>());
      }
    }
    for (; r + 4 < rows; r += kSumRows) add(r, Constant<kSumRows>());
    for (; r < rows; r += 4) add(r, Constant<4>());
  }
  for (; r < rows; ++r) add(r, Constant<1>());
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
