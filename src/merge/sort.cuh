// The order of keys, largest first: bitonic networks, in a warp's registers and in
// memory of a block.
#pragma once

namespace onepass {

// Steps of the networks over N keys a lane, N a power of two. A key's place is N · lane and its
// place in the lane.
//
// Keys `apart` lanes from each other; `falls`: whether the run of this lane is to.
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
// Runs of `width` in a lane, that rise and then fall; falls(i): whether that of the i-th key is to.
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

// N keys a lane; afterwards they fall with the lane, and with the place in it.
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
  } else {  // a loop: all steps of many keys would be more instructions than are kept near
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

// Of 128 and 64 keys that fall so, the 128 largest, which do, too.
__device__ inline void warp_merge_descending(unsigned long long (&keys)[4],
                                             const unsigned long long (&more)[2]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // The last of the one beside the first of the others, and so on: the larger of each are the
  // largest of all, and rise and fall.
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
