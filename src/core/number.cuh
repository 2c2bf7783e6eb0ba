// The storage formats on the device, where the conversions are instructions. 16-bit elements travel
// two to a register: a register each would be twice as many.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "core/number.hpp"

namespace onepass {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(F16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float widen(BF16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }

template <class T>
__device__ inline T narrow(float x) {
  if constexpr (std::is_same_v<T, F16>) {
    return {__half_as_ushort(__float2half_rn(x))};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return x;
  }
}

// How many elements a 32-bit word holds, and how they come in and out of it.
template <class T>
inline constexpr int kInWord = 4 / sizeof(T);

template <class T>
__device__ inline T element(unsigned word, int i) {
  if constexpr (sizeof(T) == 2) {
    return {static_cast<std::uint16_t>(word >> (16 * i))};
  } else {
    return __uint_as_float(word);
  }
}

// `values` is a word's worth.
template <class T>
__device__ inline unsigned narrow_word(const float* values) {
  unsigned word;
  if constexpr (std::is_same_v<T, F16>) {
    const __half2 pair = __floats2half2_rn(values[0], values[1]);
    memcpy(&word, &pair, sizeof word);
  } else if constexpr (std::is_same_v<T, BF16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[0], values[1]);
    memcpy(&word, &pair, sizeof word);
  } else {
    word = __float_as_uint(values[0]);
  }
  return word;
}

}  // namespace onepass
