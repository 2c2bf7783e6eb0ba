// How a step launches its kernel, and what the kernels do alike: look at a slice, find the state in
// two passes, write the answer.
#pragma once

#include <cuda_runtime.h>

#include <limits>

#include "core/cuda/element.cuh"
#include "merge/block.cuh"
#include "ops/select/key.hpp"
#include "ops/select/walk/walk.hpp"
#include "runtime/launch.hpp"

namespace onepass::ops::select {

// Calls body(Rows<T>) with the type of the call's elements.
template <class Body>
Status with_rows(const Call& call, Body body) {
  return std::visit(body, call.rows);
}

// Launches kernel(rows, more...), a block per row.
template <class T, class... More>
Status launch(void (*kernel)(Rows<T>, More...), const WalkLaunch& how, const Call& call,
              Rows<T> rows, More... more) {
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads), 0,
           static_cast<cudaStream_t>(call.stream)>>>(rows, more...);
  return launch_status("top-k's walk");
}

// body(element, column) for a thread's slice of a row: every blockDim.x-th element.
template <class T, class Body>
__device__ inline void for_slice(const T* x, std::int64_t cols, Body body) {
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    body(widen(x[c]), static_cast<unsigned>(c));
  }
}

// NaN if one is, so that a row with one is told from a row with +inf.
struct LargestOrNan {
  using Value = float;
  __device__ static Value identity() { return minus_infinity<float>(); }
  __device__ Value operator()(Value a, Value b) const { return larger_or_nan(a, b); }
};

// The row's state as the textbook has it: the maximum, then the sum. `of_warp` is free
// again afterwards.
template <class T>
__device__ inline State<float> state_in_two_passes(const T* x, std::int64_t cols,
                                                   float (&of_warp)[32]) {
  float m = minus_infinity<float>();
  for_slice(x, cols, [&](float z, unsigned) { m = larger_or_nan(m, z); });
  m = BlockFold<LargestOrNan>(of_warp).all(m);
  const float s = shift(m);
  float d = 0;
  for_slice(x, cols, [&](float z, unsigned) { d += exponential(z - s); });
  return {m, BlockFold<Add<float>>(of_warp).all(d)};
}

// The block's row, given its K largest keys, largest first. A row with a NaN has no
// answer: indices of −1.
template <class T>
__device__ inline void write_answer(const Rows<T>& a, const State<float>& state, const Key* keys) {
  const std::int64_t row = blockIdx.x;
  const bool has_nan = state.m != state.m;
  for (int i = static_cast<int>(threadIdx.x); i < a.k; i += static_cast<int>(blockDim.x)) {
    const float p = has_nan ? state.m : weight(state, value_of(keys[i]));
    a.values[row * a.values_stride + i] = narrow<T>(p);
    a.indices[row * a.indices_stride + i] = has_nan ? -1 : static_cast<int>(index_of(keys[i]));
  }
}

}  // namespace onepass::ops::select
