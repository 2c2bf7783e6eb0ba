// The exp of differences to a maximum. In float32 on a GPU it is the hardware's 2^x, one
// instruction. Callers subtract before this scales by log2 e, so that 3e38 beside −3e38 is safe.
#pragma once

#include <cmath>

#include "core/annotate.hpp"

namespace onepass {

inline constexpr float kLog2E = 1.44269504088896341F;

ONEPASS_HD inline float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

ONEPASS_HD inline float exponential(float x) {
#ifdef __CUDA_ARCH__
  return power_of_two(x * kLog2E);
#else
  return std::exp(x);
#endif
}

// exp(x) · 2^k in the same instruction. Adding k rounds x to k's magnitude, so this is for 16-bit
// results.
ONEPASS_HD inline float exponential(float x, float k) {
#ifdef __CUDA_ARCH__
  return power_of_two(fmaf(x, kLog2E, k));
#else
  return std::exp(x) * std::exp2(k);
#endif
}

ONEPASS_HD inline double exponential(double x) { return std::exp(x); }

// The same where it is computed once for many elements: a double's, of 53 instructions, by a call.
ONEPASS_HD inline float exponential_once(float x) { return exponential(x); }
ONEPASS_HD_ONCE inline double exponential_once(double x) { return exponential(x); }

}  // namespace onepass
