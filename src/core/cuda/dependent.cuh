// Kernels that overlap the one before them in their stream (sm_90): launched with leave to
// (Queue::early) a kernel may begin once every block of the one before has said so or ended, and
// then has to wait before it touches memory. A launch with leave costs the host less, even where
// nothing overlaps. Elsewhere kernels follow each other, and neither of these does anything.
#pragma once

namespace onepass {

// Until the kernel before has ended, and what it wrote can be read. Every thread of every block,
// before it touches memory: what comes after this kernel relies on it for all that came before,
// as this one relies on its neighbour.
__device__ inline void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may begin, and wait.
__device__ inline void begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace onepass
