// The merge across a warp: five exchanges of registers, no memory.
#pragma once

#include "merge/operators.hpp"

namespace onepass {

__device__ inline float exchange(float value, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, distance);
}

__device__ inline State<float> exchange(State<float> value, int distance) {
  return {exchange(value.m, distance), exchange(value.d, distance)};
}

// Everybody brings a value, everybody leaves with the fold of all: two lanes that meet compute the
// same bits, because the operators commute.
template <class Join>
__device__ inline typename Join::Value warp_fold(typename Join::Value mine, Join join) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    mine = join(mine, exchange(mine, distance));
  }
  return mine;
}

}  // namespace onepass
