// A row in packs of 16 bytes, from 03_vec4 on.
#pragma once

#include "core/cuda/pack.cuh"
#include "ops/softmax/walk/launch.cuh"

namespace onepass::ops::softmax {

template <class T>
__device__ inline PackedRow<T> packed(const Rows<T>& a, std::int64_t row) {
  return {a.in(row), a.out(row), a.cols};
}

}  // namespace onepass::ops::softmax
