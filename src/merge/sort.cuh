// The order of keys, largest first: bitonic networks, in a warp's registers and in memory of a block.
#pragma once

namespace onepass {

// N keys a lane, a power of two; afterwards they fall with the lane, and with the place in it.
template <int N>
__device__ inline void warp_sort_descending(unsigned long long (&keys)[N]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int width = 2; width <= 32 * N; width *= 2) {
    // Whether a run is to fall; of all keys in one run they are.
    const auto falls = [&](int i) {
      return width == 32 * N || (width < N ? (i & width) == 0 : (lane & width / N) == 0);
    };
#pragma unroll
    for (int apart = width / 2; apart > 0; apart /= 2) {
      if (apart >= N) {
        const bool first = (lane & apart / N) == 0;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const unsigned long long other = __shfl_xor_sync(0xFFFFFFFFU, keys[i], apart / N);
          keys[i] = (other > keys[i]) == (first == falls(i)) ? other : keys[i];
        }
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if ((i & apart) != 0) continue;
          const unsigned long long a = keys[i];
          const unsigned long long b = keys[i + apart];
          const bool swaps = (a < b) == falls(i);
          keys[i] = swaps ? b : a;
          keys[i + apart] = swaps ? a : b;
        }
      }
    }
  }
}

// A key a lane.
__device__ inline unsigned long long warp_sort_descending(unsigned long long key) {
  unsigned long long keys[1] = {key};
  warp_sort_descending(keys);
  return keys[0];
}

// How many of a run of 32 keys that fall are larger.
__device__ inline int larger_in_run(const unsigned long long* run, unsigned long long key) {
  int larger = 0;
#pragma unroll
  for (int half = 16; half > 0; half /= 2) larger += run[larger + half - 1] > key ? half : 0;
  return larger + (run[larger] > key ? 1 : 0);
}

// `size` is a power of two, at least 2; by a whole block. Keys are distinct, or equal ones alike.
static __device__ __noinline__ void sort_descending(unsigned long long* keys, int size) {
  for (int width = 2; width <= size; width *= 2) {
#pragma unroll 1
    for (int apart = width / 2; apart > 0; apart /= 2) {
      __syncthreads();
#pragma unroll 1
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2;
           pair += static_cast<int>(blockDim.x)) {
        const int low = 2 * pair - (pair & (apart - 1));
        const int high = low + apart;
        const unsigned long long a = keys[low];
        const unsigned long long b = keys[high];
        const bool falls = (low & width) == 0;
        if ((a < b) == falls) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace onepass
