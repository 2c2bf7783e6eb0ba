// Three passes over packs: maximum; exponentials, stored as they are; their scaling. The block's
// fold is what the variants differ in.
#pragma once

#include "merge/thread.cuh"
#include "ops/softmax/walk/packs.cuh"

namespace onepass::ops::softmax {

// fold(value, join) is the block's. y takes exp(x − m) and is read again, where it can hold that
// without rounding; a 16-bit y would round twice, so there the exponential is computed twice.
template <class T, class Fold>
__device__ inline void three_passes(PackedRow<T> row, Fold fold) {
  constexpr int kLanes = Pack<T>::kLanes;
  constexpr bool kStored = sizeof(T) == sizeof(float);
  const std::int64_t packs = row.packs();
  float v[kLanes];

  float m = minus_infinity<float>();
  for (std::int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    widen({row.load(i)}, v);
    m = fmaxf(m, largest_of(v));
  }
  m = fold(m, Largest<float>());

  const float s = shift(m);
  float d = 0;
  for (std::int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    widen({row.load(i)}, v);
    for (float& each : v) {
      each = exponential(each - s);
      d += each;
    }
    if constexpr (kStored) row.store(i, v, 1);
  }
  const State<float> all = {m, fold(d, Add<float>())};

  const float scale = factor(all, all.m);
  for (std::int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    if constexpr (kStored) {
      widen({row.stored(i)}, v);
    } else {
      widen({row.load(i)}, v);
      for (float& each : v) each = exponential(each - s);
    }
    row.store(i, v, scale);
  }
}

}  // namespace onepass::ops::softmax
