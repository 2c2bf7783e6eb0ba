// The merge across a warp, or an aligned part of it: exchanges of registers, no memory.
#pragma once

#include "merge/operators.hpp"

namespace onepass {

template <class T>
__device__ inline T exchange(T value, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, distance);
}

template <class T>
__device__ inline State<T> exchange(State<T> value, int distance) {
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

// The same among `lanes` neighbours, a power of two; all groups of the warp at once.
template <class Join>
__device__ inline typename Join::Value group_fold(typename Join::Value mine, Join join, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    mine = join(mine, exchange(mine, distance));
  }
  return mine;
}

}  // namespace onepass
