// A kernel that does nothing: what is asked whether this GPU can run what was compiled here.

#include <cuda_runtime.h>

#include "runtime/launch.hpp"

namespace onepass {
namespace {

__global__ void nothing() {}

}  // namespace

int probe_kernel(int& sm) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, nothing);
  sm = attributes.ptxVersion;
  return error;
}

}  // namespace onepass
