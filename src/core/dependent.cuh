// A kernel that begins while the one before it still runs (sm_90), if it was launched so: the launch costs nothing then.
// Elsewhere it begins afterwards, and neither of these does anything.
#pragma once

namespace onepass {

// By the first kernel: once all of its blocks have said so, the next may begin.
__device__ inline void begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// By the second: until the first has ended, and what it wrote can be read.
__device__ inline void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace onepass
