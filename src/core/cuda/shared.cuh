// Where a pointer leads. A function that is called, not inlined, has no way to know, and takes
// loads, stores and atomics that find out each time.
#pragma once

namespace onepass {

// It must be so: the compiler takes what would be different for something that never happens,
// and leaves it out.
template <class T>
__device__ inline void assume_shared(const T* pointer) {
  __builtin_assume(__isShared(pointer));
}

// The same memory, whose address is now in a register: the compiler would make it anew at each use,
// by five instructions. By a whole warp.
template <class T>
__device__ inline T* in_register(T* shared) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  return static_cast<T*>(__cvta_shared_to_generic(__shfl_sync(0xFFFFFFFFU, address, 0)));
}

}  // namespace onepass
