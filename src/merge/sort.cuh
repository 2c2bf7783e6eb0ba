// The order of keys in a block's shared memory: a bitonic network, largest first.
#pragma once

namespace onepass {

// `size` is a power of two, at least 2; by a whole block. Keys are distinct, or equal ones alike.
__device__ inline void sort_descending(unsigned long long* keys, int size) {
  for (int width = 2; width <= size; width *= 2) {
    for (int apart = width / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2;
           pair += static_cast<int>(blockDim.x)) {
        const int low = 2 * pair - (pair & (apart - 1));
        const int high = low + apart;
        const unsigned long long a = keys[low];
        const unsigned long long b = keys[high];
        const bool falls = (low & width) == 0;  // this run is to fall
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
