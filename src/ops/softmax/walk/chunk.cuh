// A run of packs of a row, folded and finished by one block: the whole row, or a chunk of it.
#pragma once

#include "merge/block.cuh"
#include "merge/thread.cuh"
#include "ops/softmax/walk/packs.cuh"

namespace onepass::ops::softmax {

// This thread's share of packs [begin, end). One rescaling for kInFlight packs.
template <class T>
__device__ inline State<float> fold_packs(const PackedRow<T>& row, std::int64_t begin,
                                          std::int64_t end) {
  State<float> mine = identity<float>();
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kInFlight * blockDim.x) {
    Pack<T> packs[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) packs[k] = row.load(i + k * blockDim.x, end);
    float v[kInFlight * Pack<T>::kLanes];
    widen(packs, v);
    mine = merge(mine, fold_in_place(v));
  }
  return mine;
}

template <class T>
__device__ inline void finish_packs(const PackedRow<T>& row, State<float> all, std::int64_t begin,
                                    std::int64_t end) {
  const float s = shift(all.m);
  const float scale = factor(all, all.m);
#pragma unroll kInFlight
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    float v[Pack<T>::kLanes];
    widen({row.load(i)}, v);
    for (float& each : v) each = exponential(each - s);
    row.store(i, v, scale);
  }
}

// Chunk `index` of `count` of a row's packs.
struct Chunk {
  std::int64_t begin, end;
};

__device__ inline Chunk chunk_of(std::int64_t packs, int count, int index) {
  const std::int64_t size = (packs + count - 1) / count;
  const std::int64_t begin = min(packs, size * index);
  return {begin, min(packs, begin + size)};
}

}  // namespace onepass::ops::softmax
