// Converts an element to a float and back on the device, by one instruction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "core/element.hpp"

namespace onepass {

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(F16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float widen(BF16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }

template <class Stored, class T>
__device__ inline Stored narrow(T x) {
  if constexpr (std::is_same_v<Stored, F16>) {
    return {__half_as_ushort(__float2half_rn(static_cast<float>(x)))};
  } else if constexpr (std::is_same_v<Stored, BF16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(x)))};
  } else {
    return static_cast<Stored>(x);
  }
}

}  // namespace onepass
