// A kernel that begins while the one before it still runs (sm_90): its launch costs nothing then. Elsewhere it begins
// afterwards, and neither of these does anything.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

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

// Launches the second.
template <class... Args>
void launch_dependent(void (*kernel)(Args...), unsigned blocks, unsigned threads,
                      cudaStream_t stream, const std::type_identity_t<Args>&... args) {
  int device = 0;
  int major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = major >= 9 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace onepass
