// One query, key or value in the type that a worker computes in. Per-target.

#if defined(ONEPASS_OPS_ATTENTION_ROW_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_ROW_INL
#undef ONEPASS_OPS_ATTENTION_ROW_INL
#else
#define ONEPASS_OPS_ATTENTION_ROW_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "core/simd/memory-inl.hpp"
#include "ops/attention/args.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

// `dim` elements in the buffer, and zeros up to whole vectors.
template <class D, class Stored, class T = hn::TFromD<D>>
const T* ConvertRow(D d, const Stored* from, size_t dim, T* buffer) {
  const size_t lanes = hn::Lanes(d);
  for (size_t j = 0; j < dim; j += lanes) {
    const auto x = j + lanes <= dim ? LoadLanes(d, from + j) : LoadTail(d, from + j, dim - j, T(0));
    hn::StoreU(x, d, buffer + j);
  }
  return buffer;
}

// The row at an element's offset: in place if it is stored as T and need not be padded.
template <class D, class T = hn::TFromD<D>>
const T* RowAs(D d, const Heads& operand, int64_t at, size_t dim, bool may_stay, T* buffer) {
  return with_type_for<float>(operand.dtype, [&]<class Stored>(Type<Stored>) HWY_ATTR {
    const Stored* from = static_cast<const Stored*>(operand.data) + at;
    if constexpr (std::is_same_v<Stored, T>) {
      if (may_stay) return from;
    }
    return ConvertRow(d, from, dim, buffer);
  });
}

// Whether all elements of a row, in whole vectors, are numbers: 0 · x is 0 for these alone.
template <class D, class T = hn::TFromD<D>>
bool AllFinite(D d, const T* row, size_t padded) {
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < padded; j += hn::Lanes(d)) {
    sum = hn::MulAdd(hn::LoadU(d, row + j), hn::Zero(d), sum);
  }
  return hn::AllTrue(d, hn::Eq(sum, sum));
}

// Writes or adds `dim` elements to the row at an element's offset. `from` is whole vectors.
template <class D, class T = hn::TFromD<D>>
void WriteRow(D d, const T* from, size_t dim, bool add, const Heads& operand, int64_t at) {
  with_type_for<float>(operand.dtype, [&]<class Stored>(Type<Stored>) HWY_ATTR {
    Stored* to = static_cast<Stored*>(operand.data) + at;
    const size_t lanes = hn::Lanes(d);
    for (size_t j = 0; j < dim; j += lanes) {
      const bool whole = j + lanes <= dim;
      auto x = hn::LoadU(d, from + j);
      if (add) {
        x = hn::Add(whole ? LoadLanes(d, to + j) : LoadTail(d, to + j, dim - j, T(0)), x);
      }
      whole ? StoreLanes(d, x, to + j) : StoreTail(d, x, to + j, dim - j);
    }
  });
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
