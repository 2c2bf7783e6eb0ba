// Where a pointer leads. A function that is called, not inlined, has no way to know, and takes loads, stores and atomics
// that find out each time.
#pragma once

namespace onepass {

// It must be so: the compiler takes what would be different for something that never happens, and leaves it out.
template <class T>
__device__ inline void assume_shared(const T* pointer) {
  __builtin_assume(__isShared(pointer));
}

}  // namespace onepass
