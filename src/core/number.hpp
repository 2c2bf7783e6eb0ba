// The storage formats and their conversions, one element at a time. SIMD versions: core/simd/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/annotate.hpp"
#include "core/element.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

ONEPASS_HD inline float to_float(BF16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

ONEPASS_HD inline BF16 to_bf16(float x) {
#ifdef __CUDA_ARCH__  // an instruction there
  std::uint16_t converted;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(converted) : "f"(x));
  return {converted};
#else
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x)
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};  // rounding could make it inf
  return {static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
#endif
}

ONEPASS_HD inline float to_float(F16 x) {
#ifdef __CUDA_ARCH__
  float converted;
  asm("cvt.f32.f16 %0, %1;" : "=f"(converted) : "h"(x.bits));
  return converted;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1F;
  const std::uint32_t mantissa = x.bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: the mantissa counts steps of 2^−24
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
#endif
}

ONEPASS_HD inline F16 to_f16(float x) {
#ifdef __CUDA_ARCH__
  std::uint16_t converted;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(converted) : "f"(x));
  return {converted};
#else
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  const auto with_sign = [sign](std::uint32_t low) {
    return F16{static_cast<std::uint16_t>(sign | low)};
  };
  if (magnitude > 0x7F800000) return with_sign(0x7E00);   // NaN
  if (magnitude >= 0x477FF000) return with_sign(0x7C00);  // rounds to 65536 or more: inf
  if (magnitude < 0x38800000) {  // below 2^−14: adding 0.5 lets the FPU round to steps of 2^−24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return with_sign(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000);
  }
  return with_sign((magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13);
#endif
}

// One stored element as the type a kernel computes in, and back.
template <class T, class Stored>
ONEPASS_HD inline T load_as(Stored x) {
  if constexpr (std::is_arithmetic_v<Stored>) {
    return static_cast<T>(x);
  } else {
    return static_cast<T>(to_float(x));
  }
}

template <class Stored, class T>
ONEPASS_HD inline Stored store_as(T x) {
  if constexpr (std::is_same_v<Stored, F16>) {
    return to_f16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<Stored, BF16>) {
    return to_bf16(static_cast<float>(x));
  } else {
    return static_cast<Stored>(x);
  }
}

// Calls body with the storage type of a dtype.
template <class Body>
ONEPASS_HD inline decltype(auto) with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f16: return body(Type<F16>{});
    case DType::bf16: return body(Type<BF16>{});
    case DType::f64: return body(Type<double>{});
    case DType::u8: return body(Type<std::uint8_t>{});
    case DType::i32: return body(Type<std::int32_t>{});
    case DType::i64: return body(Type<std::int64_t>{});
    case DType::f32: break;
  }
  return body(Type<float>{});
}

// Like with_type, but only with storage types of T's kind, floating or integer. Fewer cases are
// fewer instructions for a kernel to fetch.
template <class T, class Body>
ONEPASS_HD inline decltype(auto) with_type_for(DType dtype, Body&& body) {
  static_assert(std::is_arithmetic_v<T>);
  if constexpr (std::is_floating_point_v<T>) {
    switch (dtype) {
      case DType::f16: return body(Type<F16>{});
      case DType::bf16: return body(Type<BF16>{});
      case DType::f64: return body(Type<double>{});
      default: return body(Type<float>{});
    }
  } else {
    switch (dtype) {
      case DType::u8: return body(Type<std::uint8_t>{});
      case DType::i32: return body(Type<std::int32_t>{});
      default: return body(Type<std::int64_t>{});
    }
  }
}

// The element at an index of an untyped array.
template <class T>
ONEPASS_HD inline T read(const void* data, DType dtype, std::int64_t index) {
  return with_type(dtype, [&]<class Stored>(Type<Stored>) {
    return load_as<T>(static_cast<const Stored*>(data)[index]);
  });
}

// Like read, for an array of T's kind, floating or integer.
template <class T>
ONEPASS_HD inline T read_like(const void* data, DType dtype, std::int64_t index) {
  return with_type_for<T>(dtype, [&]<class Stored>(Type<Stored>) {
    return load_as<T>(static_cast<const Stored*>(data)[index]);
  });
}

// One element of T's kind, read by a call: for per-row options, which few calls have.
template <class T>
ONEPASS_HD_ONCE inline T read_one(const void* data, DType dtype) {
  return with_type_for<T>(dtype, [data]<class Stored>(Type<Stored>) {
    return load_as<T>(*static_cast<const Stored*>(data));
  });
}

// The element of T's kind at an index, read by a call.
template <class T>
ONEPASS_HD inline T read_one(const void* data, DType dtype, std::int64_t index) {
  const auto bytes = index * static_cast<std::int64_t>(size_of(dtype));
  return read_one<T>(static_cast<const std::byte*>(data) + bytes, dtype);
}

template <class T>
ONEPASS_HD inline void write(void* data, DType dtype, std::int64_t index, T value) {
  with_type(dtype, [&]<class Stored>(Type<Stored>) {
    static_cast<Stored*>(data)[index] = store_as<Stored>(value);
  });
}

// Like write, to an array of the value's kind, floating or integer, as all outputs of kernels are.
template <class T>
ONEPASS_HD inline void write_like(void* data, DType dtype, std::int64_t index, T value) {
  with_type_for<T>(dtype, [&]<class Stored>(Type<Stored>) {
    static_cast<Stored*>(data)[index] = store_as<Stored>(value);
  });
}

// Like write_like, by a call: for writes that are rare.
ONEPASS_HD_ONCE inline void write_one(void* data, DType dtype, std::int64_t index, float value) {
  write_like(data, dtype, index, value);
}

}  // namespace onepass
