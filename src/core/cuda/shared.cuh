// Tells the compiler that a pointer leads to shared memory. A function that is not inlined cannot
// know and would use generic loads, stores and atomics, which find out each time.
#pragma once

namespace onepass {

// The pointer must lead to shared memory: the compiler assumes so and removes code for other cases.
template <class T>
__device__ inline void assume_shared(const T* pointer) {
  __builtin_assume(__isShared(pointer));
}

// The same pointer, with its address kept in a register: the compiler would compute it again at
// each use, by five instructions. A whole warp calls it.
template <class T>
__device__ inline T* in_register(T* shared) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  return static_cast<T*>(__cvta_shared_to_generic(__shfl_sync(0xFFFFFFFFU, address, 0)));
}

}  // namespace onepass
