// The merge at its lowest level on a GPU: the values that one thread holds in registers.
#pragma once

#include "core/state.hpp"

namespace onepass {

template <int N>
__device__ inline float largest_of(const float (&values)[N]) {
  float m = values[0];
#pragma unroll
  for (int i = 1; i < N; ++i) m = fmaxf(m, values[i]);  // drops a NaN, which the sum then keeps
  return m;
}

// The same, but a NaN among them is the result.
template <class T, int N>
__device__ inline T largest_or_nan(const T (&values)[N]) {
  T m = values[0];
#pragma unroll
  for (int i = 1; i < N; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      asm("max.NaN.f32 %0, %0, %1;" : "+f"(m) : "f"(values[i]));
    } else {
      m = values[i] > m || values[i] != values[i] ? values[i] : m;  // of NaN and m: NaN
    }
  }
  return m;
}

// The state of a few values, each exponentiated once. They become exp(x − m), to be scaled when the
// whole row is known.
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
