#include "tests/kernels/fake_runtime.hpp"
#include "dispatch/machines.hpp"

#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>

#include "core/machine.hpp"

namespace onepass::fake {
namespace {

// The library's static constructors fill it, in whatever order.
std::map<const void*, std::string>& all() {
  static std::map<const void*, std::string> kernels;
  return kernels;
}

std::set<const void*>& reached() {
  static std::set<const void*> kernels;
  return kernels;
}

int current = 0;  // of known_gpus()

cudaError_t reach(const void* kernel) {
  reached().insert(kernel);
  return cudaSuccess;
}

CUresult encode(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}

}  // namespace

const std::map<const void*, std::string>& kernels() { return all(); }

void use(const Machine& machine) { current = static_cast<int>(&machine - known_gpus().data()); }

std::set<const void*> take_reached() { return std::exchange(reached(), {}); }

}  // namespace onepass::fake

using namespace onepass;  // NOLINT(google-build-using-namespace)

// All that the library calls of the runtime: with one missing, the linker would take the
// real one, whole.
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* mangled, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  int status = 0;
  char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  fake::all()[host] = status == 0 ? readable : mangled;
  std::free(readable);
}

unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, CUstream_st*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return fake::reach(kernel);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return fake::reach(kernel);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) {
  return fake::reach(kernel);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, std::size_t,
                                        cudaStream_t) {
  return fake::reach(kernel);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* kernel) {
  return fake::reach(kernel);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(known_gpus().size());
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = fake::current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  fake::current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  const Machine& m = known_gpus()[static_cast<std::size_t>(device)];
  *p = {};
  m.name.copy(p->name, sizeof p->name - 1);
  p->major = m.gpu.sm / 10;
  p->minor = m.gpu.sm % 10;
  p->sharedMemPerMultiprocessor = static_cast<std::size_t>(m.l1);
  p->l2CacheSize = static_cast<int>(m.l2);
  p->multiProcessorCount = m.gpu.processors;
  p->maxThreadsPerBlock = m.gpu.block_threads;
  p->maxThreadsPerMultiProcessor = m.gpu.processor_threads;
  p->sharedMemPerBlockOptin = static_cast<std::size_t>(m.gpu.block_shared);
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(&fake::encode);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t) {
  *memory = nullptr;
  return cudaErrorMemoryAllocation;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  attributes->devicePointer = const_cast<void*>(data);
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "none"; }
const char* cudaGetErrorString(cudaError_t) { return "none"; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void*, const void*, std::size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
