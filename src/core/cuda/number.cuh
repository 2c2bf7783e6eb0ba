// The storage formats on the device, where conversions are instructions. Two 16-bit elements share
// a register, which halves the number of registers.
#pragma once

#include <cstring>

#include "core/cuda/element.cuh"
#include "core/number.hpp"

namespace onepass {

// Converts values to the 32-bit words that they have in memory, side by side.
template <class Stored, class T, int Words>
__device__ inline void narrow_words(const T* values, unsigned (&words)[Words]) {
#pragma unroll
  for (int w = 0; w < Words; ++w) {
    if constexpr (sizeof(Stored) == 2) {
      const auto low = static_cast<float>(values[2 * w]);
      const auto high = static_cast<float>(values[2 * w + 1]);
      if constexpr (std::is_same_v<Stored, F16>) {
        const __half2 pair = __floats2half2_rn(low, high);
        memcpy(&words[w], &pair, sizeof pair);
      } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        memcpy(&words[w], &pair, sizeof pair);
      }
    } else if constexpr (sizeof(Stored) == 4) {
      words[w] = __float_as_uint(static_cast<float>(values[w]));
    } else {
      const long long bits = __double_as_longlong(values[w / 2]);
      words[w] = static_cast<unsigned>(w % 2 == 0 ? bits : bits >> 32);
    }
  }
}

// Element k of values in memory, given their words.
template <class Stored, int Words>
__device__ inline Stored element(const unsigned (&words)[Words], int k) {
  if constexpr (sizeof(Stored) == 2) {
    return {static_cast<std::uint16_t>(words[k / 2] >> (16 * (k % 2)))};
  } else if constexpr (sizeof(Stored) == 4) {
    return __uint_as_float(words[k]);
  } else {
    return __hiloint2double(static_cast<int>(words[2 * k + 1]), static_cast<int>(words[2 * k]));
  }
}

// Element k, widened. Widening the upper bf16 of a word directly takes one instruction; extracting
// it first takes two.
template <class Stored, int Words>
__device__ inline auto widened(const unsigned (&words)[Words], int k) {
  if constexpr (std::is_same_v<Stored, BF16>) {
    const unsigned word = words[k / 2];
    return __uint_as_float(k % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
  } else {
    return widen(element<Stored>(words, k));
  }
}

template <class Stored, int Words>
__device__ inline void set_element(unsigned (&words)[Words], int k, Stored value) {
  if constexpr (sizeof(Stored) == 2) {
    const unsigned kept = words[k / 2] & (k % 2 == 0 ? 0xFFFF0000U : 0x0000FFFFU);
    words[k / 2] = kept | static_cast<unsigned>(value.bits) << (16 * (k % 2));
  } else if constexpr (sizeof(Stored) == 4) {
    words[k] = __float_as_uint(value);
  } else {
    words[2 * k] = static_cast<unsigned>(__double2loint(value));
    words[2 * k + 1] = static_cast<unsigned>(__double2hiint(value));
  }
}

// The larger of a and b, or NaN if either is NaN; for 16-bit elements, of both halves at once.
template <class Stored>
__device__ inline unsigned larger_word(unsigned a, unsigned b) {
  unsigned result;
  if constexpr (std::is_same_v<Stored, F16>) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else if constexpr (std::is_same_v<Stored, BF16>) {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.f32 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
}

// The larger of a and b, ignoring a NaN; for 16-bit elements, of both halves at once.
template <class Stored>
__device__ inline unsigned larger_number_word(unsigned a, unsigned b) {
  unsigned result;
  if constexpr (std::is_same_v<Stored, F16>) {
    asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else if constexpr (std::is_same_v<Stored, BF16>) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("max.f32 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
}

// The smaller of a and b, ignoring b unless it is finite and a if it is NaN; for 16-bit elements,
// of both halves at once.
template <class Stored>
__device__ inline unsigned smaller_finite_word(unsigned a, unsigned b) {
  unsigned result;  // 0 · b + b is NaN where b is not finite
  if constexpr (std::is_same_v<Stored, F16>) {
    asm("{ .reg .b32 f; fma.rn.f16x2 f, %2, %3, %2; min.f16x2 %0, %1, f; }"
        : "=r"(result)
        : "r"(a), "r"(b), "r"(0));
  } else if constexpr (std::is_same_v<Stored, BF16>) {
    asm("{ .reg .b32 f; fma.rn.bf16x2 f, %2, %3, %2; min.bf16x2 %0, %1, f; }"
        : "=r"(result)
        : "r"(a), "r"(b), "r"(0));
  } else {
    asm("{ .reg .b32 f; fma.rn.f32 f, %2, %3, %2; min.f32 %0, %1, f; }"
        : "=r"(result)
        : "r"(a), "r"(b), "r"(0));
  }
  return result;
}

// A mask of the 16-bit elements of a word that are above v: all bits of such an element are set. v
// need not be representable in 16 bits.
template <class Stored>
__device__ inline unsigned above_word(unsigned word, float v) {
  if constexpr (std::is_same_v<Stored, F16>) {
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    return __hgt2_mask(pair, __half2half2(__float2half_rd(v)));
  } else {
    __nv_bfloat162 pair;
    memcpy(&pair, &word, sizeof pair);
    return __hgt2_mask(pair, __bfloat162bfloat162(__float2bfloat16_rd(v)));
  }
}

}  // namespace onepass
