// Loads and stores that convert: one vector of the computing type from or to any storage type.
// Per-target.
//
// No tail loop anywhere: the last, partial vector of a row is loaded with the identity of what
// folds it in the missing lanes, and stored only as far as it goes.

#if defined(ONEPASS_CORE_SIMD_MEMORY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_CORE_SIMD_MEMORY_INL
#undef ONEPASS_CORE_SIMD_MEMORY_INL
#else
#define ONEPASS_CORE_SIMD_MEMORY_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/number.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's software conversions of older targets drop rounding, NaN and inf, so they are not used.
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || \
    HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kHardwareF16 = true;
#else
inline constexpr bool kHardwareF16 = false;
#endif

// Whether vectors of T can be made from Stored directly; the rest goes element by element.
template <class T, class Stored>
inline constexpr bool kVectorConvert =
    std::is_same_v<T, Stored> ||
    (std::is_same_v<T, float> &&
     (std::is_same_v<Stored, BF16> || (std::is_same_v<Stored, F16> && kHardwareF16)));

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Load(D d, const T* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> Load(D d, const BF16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> Load(D d, const F16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

template <class D, class Stored, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadTail(D d, const Stored* p, size_t count, T fill) {
#if !HWY_MEM_OPS_MIGHT_FAULT
  if constexpr (std::is_same_v<T, Stored>) {
    return hn::IfThenElse(hn::FirstN(d, count), hn::MaskedLoad(hn::FirstN(d, count), d, p),
                          hn::Set(d, fill));
  }
#endif
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(hn::Set(d, fill), d, lanes);
  for (size_t i = 0; i < count; ++i) lanes[i] = load_as<T>(p[i]);
  return hn::Load(d, lanes);
}

// What a vector looks like in storage, ready for a plain or a streaming store.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Convert(D, hn::Vec<D> v, Type<T>) {
  return v;
}

template <class D>
HWY_INLINE auto Convert(D, hn::Vec<D> v, Type<BF16>) {
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFF)), odd));
  const auto quiet = hn::Or(high, hn::Set(d32, 0x40));  // a NaN, which rounding could make inf
  const auto is_nan = hn::RebindMask(d32, hn::Ne(v, v));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  const hn::RebindToSigned<decltype(d32)> di32;
  // Values above 0x7FFF would saturate in a signed conversion: the unsigned one takes them all.
  return hn::DemoteTo(d16, hn::BitCast(di32, result));
}

template <class D>
HWY_INLINE auto Convert(D, hn::Vec<D> v, Type<F16>) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::BitCast(hn::RebindToUnsigned<decltype(d16)>(), hn::DemoteTo(d16, v));
}

// Storage as Highway knows it: the 16-bit floats travel as their bits.
template <class Stored>
using Raw = std::conditional_t<sizeof(Stored) == 2, uint16_t, Stored>;

template <class D, class Stored>
HWY_INLINE void Store(D d, hn::Vec<D> v, Stored* p) {
  const hn::Rebind<Raw<Stored>, D> raw;
  hn::StoreU(Convert(d, v, Type<Stored>{}), raw, reinterpret_cast<Raw<Stored>*>(p));
}

// Past the caches; p must be aligned to the vector's size in storage.
template <class D, class Stored>
HWY_INLINE void Stream(D d, hn::Vec<D> v, Stored* p) {
  const hn::Rebind<Raw<Stored>, D> raw;
  hn::Stream(Convert(d, v, Type<Stored>{}), raw, reinterpret_cast<Raw<Stored>*>(p));
}

template <class D, class Stored, class T = hn::TFromD<D>>
HWY_INLINE void StoreTail(D d, hn::Vec<D> v, Stored* p, size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < count; ++i) p[i] = store_as<Stored>(lanes[i]);
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
