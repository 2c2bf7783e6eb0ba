// softmax/00_naive: one thread per row, three passes. The textbook.
//
// Idea    the formula as it is written: the maximum, the sum, the quotient.
// Versus  nothing: this is where the walk begins.
// Bytes   x three times, y once. Neighbouring threads read addresses a row apart, so a warp's load
//         touches 32 lines to use 4 bytes of each.
// Limits  rows at one stride, one dtype, no options.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "core/state.hpp"
#include "ops/softmax/walk/launch.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void naive_kernel(Rows<T> a) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t row = first; row < a.rows; row += step) {
    const T* x = a.in(row);
    State<float> state = identity<float>();
    for (std::int64_t c = 0; c < a.cols; ++c) state.m = fmaxf(state.m, widen(x[c]));
    const float s = shift(state.m);
    // One thread adds up a whole row: without what each addition lost, the error grows with its
    // length (a row of 262,144 was off by 3e-4).
    float lost = 0;
    for (std::int64_t c = 0; c < a.cols; ++c) {
      const float term = exponential(widen(x[c]) - s) - lost;
      const float sum = state.d + term;
      lost = (sum - state.d) - term;
      state.d = sum;
    }
    for (std::int64_t c = 0; c < a.cols; ++c) {
      a.out(row)[c] = narrow<T>(weight(state, widen(x[c])));
    }
  }
}

}  // namespace

Status naive(const Call& call, const WalkLaunch& how) {
  return with_rows(call,
                   [&]<class T>(Rows<T> rows) { return launch(naive_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::softmax
