// Programmatic dependent launch (sm_90): kernels that overlap their predecessor in the stream. A
// kernel launched so (Queue::early) may begin once every block of its predecessor has allowed it or
// ended, and must then wait before it accesses memory. Such a launch costs the host less even if
// nothing overlaps. On other architectures both functions do nothing.
#pragma once

namespace onepass {

// Waits until the preceding kernel has ended and its writes are visible. Every thread of every
// block must call it before it accesses memory: this kernel relies on its predecessor to have
// waited for all earlier ones, and its successor relies on this one.
__device__ inline void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel to begin, up to its own wait.
__device__ inline void begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace onepass
