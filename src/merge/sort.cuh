// Sorts keys, largest first, by bitonic networks in a warp's registers or a block's shared memory.
#pragma once

namespace onepass {

// Steps of the networks over N keys per lane, N a power of two. Key i of a lane has position
// N · lane + i.
//
// Compares and exchanges keys of lanes that are `apart` from each other. `falls`: whether this
// lane's run is to descend.
template <int N>
__device__ inline void exchange_lanes(unsigned long long (&keys)[N], int apart, bool falls) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const bool larger = ((lane & apart) == 0) == falls;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const unsigned long long other = __shfl_xor_sync(0xFFFFFFFFU, keys[i], apart);
    keys[i] = (other > keys[i]) == larger ? other : keys[i];
  }
}

// Sorts bitonic runs of `width` keys in a lane. falls(i): whether the run of key i is to descend.
template <int N, class Falls>
__device__ inline void order_in_lane(unsigned long long (&keys)[N], int width, Falls falls) {
#pragma unroll
  for (int apart = width / 2; apart > 0; apart /= 2) {
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

// Sorts N keys per lane: positions then descend with the lane, and within it.
template <int N>
__device__ inline void warp_sort_descending(unsigned long long (&keys)[N]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int width = 2; width < N; width *= 2) {
    order_in_lane(keys, width, [&](int i) { return (i & width) == 0; });
  }
  order_in_lane(keys, N, [&](int) { return lane % 2 == 0; });
  const auto falls = [&](int width) { return width == 32 || (lane & width) == 0; };
  if constexpr (N <= 2) {
#pragma unroll
    for (int width = 2; width <= 32; width *= 2) {
#pragma unroll
      for (int apart = width / 2; apart > 0; apart /= 2) {
        exchange_lanes(keys, apart, falls(width));
      }
      order_in_lane(keys, N, [&](int) { return falls(width); });
    }
  } else {  // a loop: unrolled, the steps of many keys would exceed the instruction cache
#pragma unroll 1
    for (int width = 2; width <= 32; width *= 2) {
#pragma unroll 1
      for (int apart = width / 2; apart > 0; apart /= 2) {
        exchange_lanes(keys, apart, falls(width));
      }
      order_in_lane(keys, N, [&](int) { return falls(width); });
    }
  }
}

// Merges 128 and 64 keys, both sorted so, into the 128 largest, sorted likewise.
__device__ inline void warp_merge_descending(unsigned long long (&keys)[4],
                                             const unsigned long long (&more)[2]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Pairs the last of one with the first of the other, and so on: the larger keys of the pairs are
  // the largest of all, and form a bitonic run.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int from = 63 - 2 * lane - i / 2;
    const unsigned long long other = __shfl_sync(0xFFFFFFFFU, more[1 - i % 2], from);
    keys[i] = from < 32 && other > keys[i] ? other : keys[i];
  }
#pragma unroll 1
  for (int apart = 16; apart > 0; apart /= 2) exchange_lanes(keys, apart, true);
  order_in_lane(keys, 4, [](int) { return true; });
}

// Sorts one key per lane.
__device__ inline unsigned long long warp_sort_descending(unsigned long long key) {
  unsigned long long keys[1] = {key};
  warp_sort_descending(keys);
  return keys[0];
}

// How many keys of a descending run of 32 are larger than `key`.
__device__ inline int larger_in_run(const unsigned long long* run, unsigned long long key) {
  int larger = 0;
#pragma unroll
  for (int half = 16; half > 0; half /= 2) larger += run[larger + half - 1] > key ? half : 0;
  return larger + (run[larger] > key ? 1 : 0);
}

// Sorts `size` keys, a power of two of at least 2; a whole block calls it. Equal keys are
// interchangeable.
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
