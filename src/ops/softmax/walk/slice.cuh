// A thread's slice of a row, one element at a time: every blockDim.x-th.
#pragma once

#include "core/state.hpp"
#include "ops/softmax/walk/launch.cuh"

namespace onepass::ops::softmax {

// Two passes over the slice: its maximum, then its sum.
template <class T>
__device__ inline State<float> fold_slice(const T* x, std::int64_t cols) {
  State<float> mine = identity<float>();
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) mine.m = fmaxf(mine.m, widen(x[c]));
  const float s = shift(mine.m);
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    mine.d += exponential(widen(x[c]) - s);
  }
  return mine;
}

template <class T>
__device__ inline void finish_slice(State<float> row, const T* x, T* y, std::int64_t cols) {
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    y[c] = narrow<T>(weight(row, widen(x[c])));
  }
}

}  // namespace onepass::ops::softmax
