// Loads and stores that convert: one vector of the computing type from or to any storage type.
// Per-target.
//
// There is no tail loop: loads fill the missing lanes of a row's last, partial vector with the
// fold's identity, and stores write only the others.

#if defined(ONEPASS_CORE_SIMD_MEMORY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_CORE_SIMD_MEMORY_INL
#undef ONEPASS_CORE_SIMD_MEMORY_INL
#else
#define ONEPASS_CORE_SIMD_MEMORY_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "core/number.hpp"
#include "core/simd/inline-inl.hpp"

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

// bf16 in pairs of vectors: one holds the even elements, the other the odd ones, and a shift or a
// mask widens each to 32 bits. For work that does not depend on the order of elements, and for
// weights that are stored and loaded in the same order.
struct PairedBF16 : BF16 {};

// Whether vectors of T convert from Stored directly; other types go element by element.
template <class T, class Stored>
inline constexpr bool kVectorConvert = std::is_same_v<T, Stored> ||
                                       (std::is_same_v<T, float> &&
                                        (std::is_base_of_v<BF16, Stored> ||
                                         (std::is_same_v<Stored, F16> && kHardwareF16)));

// Whether T has pairs.
template <class T>
inline constexpr bool kPairs = HWY_TARGET != HWY_SCALAR&& std::is_same_v<T, float>;

// Storage as Highway knows it: the 16-bit floats travel as their bits.
template <class Stored>
using Raw = std::conditional_t<sizeof(Stored) == 2, uint16_t, Stored>;

template <class Stored>
ONEPASS_FORCED const Raw<Stored>* RawOf(const Stored* p) {
  return reinterpret_cast<const Raw<Stored>*>(p);
}

template <class Stored>
ONEPASS_FORCED Raw<Stored>* RawOf(Stored* p) {
  return reinterpret_cast<Raw<Stored>*>(p);
}

// The values of a vector from storage.
template <class D, class T = hn::TFromD<D>>
ONEPASS_FORCED hn::Vec<D> Widen(D, hn::Vec<D> v, Type<T>) {
  return v;
}

template <class D, class V16>
ONEPASS_FORCED hn::Vec<D> Widen(D d, V16 bits, Type<BF16>) {
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

// One vector of the elements that the pairs leave over, in their order.
template <class D, class V16>
ONEPASS_FORCED hn::Vec<D> Widen(D d, V16 bits, Type<PairedBF16>) {
  return Widen(d, bits, Type<BF16>());
}

template <class D, class V16>
ONEPASS_FORCED hn::Vec<D> Widen(D d, V16 bits, Type<F16>) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

// (Not named Load: argument-dependent lookup would prefer Highway's, which wants aligned memory.)
template <class D, class Stored>
ONEPASS_FORCED hn::Vec<D> LoadAs(D d, const Stored* p) {
  return Widen(d, hn::LoadU(hn::Rebind<Raw<Stored>, D>(), RawOf(p)), Type<Stored>());
}

// Copies `count` elements, at most N, as two blocks that may overlap.
template <size_t N, class T>
ONEPASS_FORCED void CopySome(const T* from, size_t count, T* to) {
  constexpr size_t kBlock = (N + 1) / 2;
  if (count >= kBlock) {
    std::memcpy(to, from, kBlock * sizeof(T));
    std::memcpy(to + (count - kBlock), from + (count - kBlock), kBlock * sizeof(T));
  } else if constexpr (kBlock > 1) {
    CopySome<kBlock>(from, count, to);
  }
}

// Element by element, for types that no vector converts. Not inlined: the conversions are long.
template <class T, class Stored>
HWY_NOINLINE void LoadElements(const Stored* p, size_t count, T* lanes) {
  for (size_t i = 0; i < count; ++i) lanes[i] = load_as<T>(p[i]);
}

template <class T, class Stored>
HWY_NOINLINE void StoreElements(const T* lanes, size_t count, Stored* p) {
  for (size_t i = 0; i < count; ++i) p[i] = store_as<Stored>(lanes[i]);
}

// Whether masked loads and stores of vectors of Stored do not access the lanes that the mask omits.
#if HWY_TARGET == HWY_AVX2
template <class Stored>
inline constexpr bool kMasks = sizeof(Stored) >= 4;
#elif HWY_TARGET == HWY_SCALAR  // loads before it tests the mask
template <class Stored>
inline constexpr bool kMasks = false;
#else
template <class Stored>
inline constexpr bool kMasks = !HWY_MEM_OPS_MIGHT_FAULT;
#endif

template <class D, class Stored, class T = hn::TFromD<D>>
ONEPASS_FORCED hn::Vec<D> LoadTail(D d, const Stored* p, size_t count, T fill) {
  if constexpr (kVectorConvert<T, Stored>) {
    const hn::Rebind<Raw<Stored>, D> raw;
    const auto filled = [&](auto some) ONEPASS_INLINE {
      const auto v = Widen(d, some, Type<Stored>());
      return hn::IfThenElse(hn::FirstN(d, count), v, hn::Set(d, fill));
    };
    if constexpr (kMasks<Stored>) {
      return filled(hn::MaskedLoad(hn::FirstN(raw, count), raw, RawOf(p)));
    } else {
      HWY_ALIGN Raw<Stored> some[hn::MaxLanes(d)] = {};
      CopySome<hn::MaxLanes(d)>(RawOf(p), count, some);
      return filled(hn::Load(raw, some));
    }
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(d)];
    hn::Store(hn::Set(d, fill), d, lanes);
    LoadElements(p, count, lanes);
    return hn::Load(d, lanes);
  }
}

// Rounds to bf16 and leaves it in the upper half of each 32-bit lane.
template <class D>
ONEPASS_FORCED auto RoundToBF16(D, hn::Vec<D> v) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));  // a NaN, which rounding could make inf
  return hn::IfThenElse(hn::RebindMask(d32, hn::Eq(v, v)), rounded, quiet);
}

// Converts a vector to its form in storage.
template <class D, class T = hn::TFromD<D>>
ONEPASS_FORCED hn::Vec<D> Convert(D, hn::Vec<D> v, Type<T>) {
  return v;
}

template <class D>
ONEPASS_FORCED auto Convert(D d, hn::Vec<D> v, Type<BF16>) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int32_t, D> di32;
  return hn::DemoteTo(d16, hn::BitCast(di32, hn::ShiftRight<16>(RoundToBF16(d, v))));
}

// The last, partial vector of pairs, in the order of the elements.
template <class D>
ONEPASS_FORCED auto Convert(D d, hn::Vec<D> v, Type<PairedBF16>) {
  return Convert(d, v, Type<BF16>());
}

template <class D>
ONEPASS_FORCED auto Convert(D, hn::Vec<D> v, Type<F16>) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::BitCast(hn::RebindToUnsigned<decltype(d16)>(), hn::DemoteTo(d16, v));
}

template <class D, class Stored>
ONEPASS_FORCED void StoreAs(D d, hn::Vec<D> v, Stored* p) {
  const hn::Rebind<Raw<Stored>, D> raw;
  hn::StoreU(Convert(d, v, Type<Stored>{}), raw, RawOf(p));
}

// How many vectors of T fill one vector of storage, and these vectors as one.
template <class D, class Stored>
ONEPASS_FORCED auto ConvertGroup(D d, const hn::Vec<D> (&v)[1], Type<Stored> stored) {
  return Convert(d, v[0], stored);
}

#if HWY_TARGET == HWY_SCALAR
template <class T, class Stored>
inline constexpr size_t kGroup = 1;
#else
template <class T, class Stored>
inline constexpr size_t kGroup = sizeof(T) / sizeof(Stored);

template <class D>
ONEPASS_FORCED auto ConvertGroup(D d, const hn::Vec<D> (&v)[2], Type<BF16>) {
  const hn::Repartition<uint16_t, D> d16;  // the upper halves are the odd ones of twice the lanes
  return hn::ConcatOdd(d16, hn::BitCast(d16, RoundToBF16(d, v[1])),
                       hn::BitCast(d16, RoundToBF16(d, v[0])));
}

template <class D>
ONEPASS_FORCED auto ConvertGroup(D d, const hn::Vec<D> (&v)[2], Type<F16> stored) {
  const hn::Repartition<uint16_t, D> d16;
  return hn::Combine(d16, Convert(d, v[1], stored), Convert(d, v[0], stored));
}

// The odd halves are in place; the even ones move down. Rounds by adding half a step and
// truncating, so ties go up. A NaN that came from bf16 stays a NaN, because its lower bits are 0.
template <class D>
ONEPASS_FORCED auto ConvertGroup(D, const hn::Vec<D> (&v)[2], Type<PairedBF16>) {
  const hn::Repartition<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto rounded = [d32](hn::Vec<D> each) ONEPASS_INLINE {
    return hn::Add(hn::BitCast(d32, each), hn::Set(d32, 0x8000));
  };
  return hn::OddEven(hn::BitCast(d16, rounded(v[1])),
                     hn::BitCast(d16, hn::ShiftRight<16>(rounded(v[0]))));
}
#endif

// Stores kGroup vectors at p. A streaming store bypasses the caches and needs p aligned to a
// vector.
template <bool Streaming, class D, class Stored, size_t K>
ONEPASS_FORCED void StoreGroup(D d, const hn::Vec<D> (&v)[K], Stored* p) {
  const auto packed = ConvertGroup(d, v, Type<Stored>{});
  const hn::DFromV<decltype(packed)> raw;
  if constexpr (Streaming) {
    hn::Stream(packed, raw, RawOf(p));
  } else {
    hn::StoreU(packed, raw, RawOf(p));
  }
}

// Stores kept vectors at p, multiplied.
template <bool Streaming, size_t Vectors, class D, class Stored, class T = hn::TFromD<D>>
ONEPASS_FORCED void StoreScaled(D d, const T* values, hn::Vec<D> factor, Stored* p) {
  constexpr size_t kStep = kGroup<T, Stored>;
  for (size_t k = 0; k < Vectors; k += kStep) {
    hn::Vec<D> v[kStep];
    for (size_t j = 0; j < kStep; ++j) {
      v[j] = hn::Mul(hn::LoadU(d, values + (k + j) * hn::Lanes(d)), factor);
    }
    StoreGroup<Streaming>(d, v, p + k * hn::Lanes(d));
  }
}

template <class D, class Stored, class T = hn::TFromD<D>>
ONEPASS_FORCED void StoreTail(D d, hn::Vec<D> v, Stored* p, size_t count) {
  if constexpr (kVectorConvert<T, Stored>) {
    const hn::Rebind<Raw<Stored>, D> raw;
    const auto converted = Convert(d, v, Type<Stored>());
    if constexpr (kMasks<Stored>) {
      hn::BlendedStore(converted, hn::FirstN(raw, count), raw, RawOf(p));
    } else {
      HWY_ALIGN Raw<Stored> some[hn::MaxLanes(d)];
      hn::Store(converted, raw, some);
      CopySome<hn::MaxLanes(d)>(some, count, RawOf(p));
    }
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    StoreElements(lanes, count, p);
  }
}

// A whole vector from or to any storage type, the ones without a vector conversion included.
template <class D, class Stored, class T = hn::TFromD<D>>
ONEPASS_FORCED hn::Vec<D> LoadLanes(D d, const Stored* p) {
  if constexpr (kVectorConvert<T, Stored>) {
    return LoadAs(d, p);
  } else {
    return LoadTail(d, p, hn::Lanes(d), T(0));
  }
}

template <class D, class Stored>
ONEPASS_FORCED void StoreLanes(D d, hn::Vec<D> v, Stored* p) {
  if constexpr (kVectorConvert<hn::TFromD<D>, Stored>) {
    StoreAs(d, v, p);
  } else {
    StoreTail(d, v, p, hn::Lanes(d));
  }
}

// Prefetches the cache lines of `bytes` bytes at p + offset. They may be past the end of an array,
// or p null, because nothing is accessed: hence an address, not a pointer.
template <bool Written = false>
ONEPASS_FORCED void Fetch(const void* p, size_t offset, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) + offset;
  for (size_t b = 0; b < bytes; b += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + b), Written ? 1 : 0);
  }
}

// Vectors worked on at a time: enough to hide latencies, few enough to stay in registers.
// (HWY_SCALAR: a pack is summed by itself, and a sum of sums is the more accurate.)
#if HWY_TARGET == HWY_AVX2
inline constexpr size_t kPack = 2;
#else
inline constexpr size_t kPack = 4;
#endif

template <class D, class Stored, size_t K>
ONEPASS_FORCED void LoadPack(D d, const Stored* p, hn::Vec<D> (&pack)[K]) {
  for (size_t k = 0; k < K; ++k) pack[k] = LoadLanes(d, p + k * hn::Lanes(d));
}

#if HWY_TARGET != HWY_SCALAR
template <class D, size_t K>
ONEPASS_FORCED void LoadPack(D d, const PairedBF16* p, hn::Vec<D> (&pack)[K]) {
  static_assert(K % 2 == 0);
  const hn::Repartition<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  for (size_t k = 0; k < K; k += 2) {
    const auto* raw = reinterpret_cast<const uint16_t*>(p + k * hn::Lanes(d));
    const auto both = hn::BitCast(d32, hn::LoadU(d16, raw));
    pack[k] = hn::BitCast(d, hn::ShiftLeft<16>(both));
    pack[k + 1] = hn::BitCast(d, hn::And(both, hn::Set(d32, 0xFFFF0000)));
  }
}
#endif

// For work that takes the elements in any order: the cheapest order.
template <class Stored>
ONEPASS_FORCED const Stored* AnyOrder(const Stored* p) {
  return p;
}

#if HWY_TARGET != HWY_SCALAR
ONEPASS_FORCED const PairedBF16* AnyOrder(const BF16* p) {
  return static_cast<const PairedBF16*>(p);
}
#endif

// Calls body(pack, i) with the vectors from element i on, in order: kPack vectors at a time, then
// groups of those that are stored together, then single vectors. In the last one, lanes past the
// end hold `fill`.
template <class D, class Stored, class Body, class T = hn::TFromD<D>>
ONEPASS_FORCED void ForEachPack(D d, const Stored* p, size_t n, T fill, Body body) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + kPack * lanes <= n; i += kPack * lanes) {
    hn::Vec<D> pack[kPack];
    LoadPack(d, p + i, pack);
    body(pack, i);
  }
  if constexpr (std::is_same_v<Stored, PairedBF16>) {
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      hn::Vec<D> pack[2];
      LoadPack(d, p + i, pack);
      body(pack, i);
    }
  }
  for (; i < n; i += lanes) {
    hn::Vec<D> pack[1] = {i + lanes <= n ? LoadLanes(d, p + i) : LoadTail(d, p + i, n - i, fill)};
    body(pack, i);
  }
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
