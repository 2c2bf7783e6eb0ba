// The K largest of a row in a block's shared memory, as keys that order by value and then by index.
//
// A threshold keeps most elements out: at least K keys that are as large have been offered. What passes is
// appended; where there is no room left, the keys are sorted, K of them stay, and the threshold rises.
#pragma once

#include "core/state.hpp"
#include "dispatch/gpu_choose.hpp"
#include "merge/sort.cuh"

namespace onepass {

using Key = std::uint64_t;

// Larger floats are larger words, −0 and +0 alike; a NaN does not come here.
__device__ inline unsigned ordered(float z) {
  const unsigned bits = __float_as_uint(z + 0.0F);
  return bits ^ (static_cast<int>(bits) < 0 ? 0xFFFFFFFFU : 0x80000000U);
}
__device__ inline float value_of(Key key) {
  const auto word = static_cast<unsigned>(key >> 32);
  return __uint_as_float(word ^ (static_cast<int>(word) < 0 ? 0x80000000U : 0xFFFFFFFFU));
}

// The lower index first: of two keys with one value it is the larger.
__device__ inline Key key_of(float z, unsigned index) {
  return static_cast<Key>(ordered(z)) << 32 | ~index;
}
__device__ inline unsigned index_of(Key key) { return ~static_cast<unsigned>(key); }

using gpu_choose::kMostKeys;  // of a block

class BestKeys {
 public:
  struct Shared {
    Key keys[kMostKeys];
    int count;
    float threshold;
    float of_warp[32];
  };

  // By a whole block, as all that follow.
  static_assert(sizeof(Shared) <= gpu_choose::kSharedBytes);

  __device__ BestKeys(Shared& shared, int k) : shared_(shared), k_(k) {
    if (threadIdx.x == 0) {
      shared_.count = 0;
      shared_.threshold = minus_infinity<float>();
    }
    __syncthreads();
  }

  // Elements at or below it are not among the K largest. −inf never is offered.
  __device__ float threshold() const { return shared_.threshold; }

  // Raises the threshold by what the threads' own maxima say. Every warp finds its q-th largest, q so that all
  // warps together have K that are not smaller: the least of them all is a bound, and elements equal to it
  // still count, so it is lowered by one step.
  __device__ void bound(float largest) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warps = static_cast<int>(blockDim.x / 32);
    const int q = (k_ + warps - 1) / warps;
    if (q > 32) return;  // fewer threads than K
    const float sorted = sorted_in_warp(largest);
    if (lane == q - 1) shared_.of_warp[threadIdx.x / 32] = sorted;
    __syncthreads();
    if (threadIdx.x == 0) {
      float least = shared_.of_warp[0];
      for (int w = 1; w < warps; ++w) least = fminf(least, shared_.of_warp[w]);
      shared_.threshold = fmaxf(shared_.threshold, just_below(least));
    }
    __syncthreads();
  }

  // Room for a thread's `count` keys, for all threads of a warp at once: where they go, or null for the whole
  // warp where there is none.
  __device__ bool reserve(int count, Key*& to) {
    if (!__any_sync(0xFFFFFFFFU, count > 0)) return true;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    int before = count;  // of the lanes up to this one
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, before, apart);
      if (lane >= apart) before += other;
    }
    int first = 0;
    if (lane == 31) {
      first = atomicAdd(&shared_.count, before);
      if (first + before > kMostKeys) {
        atomicSub(&shared_.count, before);
        first = -1;
      }
    }
    first = __shfl_sync(0xFFFFFFFFU, first, 31);
    to = shared_.keys + first + before - count;
    return first >= 0;
  }

  // Sorts, and keeps K. Afterwards keys()[0 … count()) fall.
  __device__ void cut() {
    __syncthreads();
    const int count = min(shared_.count, kMostKeys);
    int size = 2;
    while (size < count) size *= 2;
    for (int i = count + static_cast<int>(threadIdx.x); i < size;
         i += static_cast<int>(blockDim.x)) {
      shared_.keys[i] = 0;
    }
    sort_descending(shared_.keys, size);
    if (threadIdx.x == 0) {
      shared_.count = min(count, k_);
      if (count >= k_) shared_.threshold = fmaxf(shared_.threshold, value_of(shared_.keys[k_ - 1]));
    }
    __syncthreads();
  }

  __device__ int count() const { return shared_.count; }
  __device__ const Key* keys() const { return shared_.keys; }

 private:
  // A warp's values, falling with the lane.
  __device__ static float sorted_in_warp(float value) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int width = 2; width <= 32; width *= 2) {
#pragma unroll
      for (int apart = width / 2; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFU, value, apart);
        const bool falls = (lane & width) == 0 || width == 32;
        const bool low = (lane & apart) == 0;
        value = low == falls ? fmaxf(value, other) : fminf(value, other);
      }
    }
    return value;
  }

  __device__ static float just_below(float z) {
    if (z == minus_infinity<float>()) return z;
    return nextafterf(z, minus_infinity<float>());
  }

  Shared& shared_;
  int k_;
};

}  // namespace onepass
