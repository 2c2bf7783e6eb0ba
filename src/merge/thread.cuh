// The merge at its lowest level on a GPU: the values that one thread holds in registers.
#pragma once

#include "core/state.hpp"
#include "merge/operators.hpp"

namespace onepass {

template <int N>
__device__ inline float largest_of(const float (&values)[N]) {
  float m = values[0];
#pragma unroll
  for (int i = 1; i < N; ++i) m = fmaxf(m, values[i]);  // drops a NaN; the sum will keep it
  return m;
}

// The larger value, or NaN if either is NaN.
__device__ inline float larger_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ inline double larger_or_nan(double a, double b) { return a > b || a != a ? a : b; }

// The largest value, or NaN if any is NaN.
template <class T, int N>
__device__ inline T largest_or_nan(const T (&values)[N]) {
  T m = values[0];
#pragma unroll
  for (int i = 1; i < N; ++i) m = larger_or_nan(values[i], m);
  return m;
}

// The state of a few values. Replaces each by exp(x − m), to be scaled when the state of the whole
// row is known.
template <int N>
__device__ inline State<float> fold_in_place(float (&values)[N]) {
  const float m = largest_of(values);
  const float s = shift(m);
  float d = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = exponential(values[i] - s);
    d += values[i];
  }
  return {m, d};
}

}  // namespace onepass
