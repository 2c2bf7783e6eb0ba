// The GPU through CUDA's runtime: all of its calls but the launches.

#include <cuda_runtime.h>

#include <cctype>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/gpu.hpp"
#include "runtime/launch.hpp"

namespace onepass {
namespace {

template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

std::string version_text(int version) { return text_of(version / 1000, ".", version % 1000 / 10); }

// What an error means to a caller who can do something about it. The runtime remembers an error
// until it is asked; what is told here is forgotten there, so that the next call starts clean.
Status status_of(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  switch (error) {
    case cudaErrorNoDevice: return {Code::unsupported, "cuda: this machine has no GPU"};
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: {
      int driver = 0;
      cudaDriverGetVersion(&driver);
      if (driver == 0)
        return {Code::unsupported, "cuda: no GPU here: no NVIDIA driver is installed"};
      return {Code::unsupported, text_of("cuda: the driver is made for CUDA ", version_text(driver),
                                         ", this program for ", version_text(CUDART_VERSION))};
    }
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion: {
      int device = 0;
      cudaDeviceProp properties{};
      cudaGetDevice(&device);
      cudaGetDeviceProperties(&properties, device);
      return {Code::unsupported,
              text_of("cuda: the kernels were not compiled for ", properties.name, " (sm_",
                      properties.major, properties.minor,
                      "); build with ONEPASS_CUDA_ARCHITECTURES set")};
    }
    case cudaErrorMemoryAllocation:
      return {Code::out_of_memory, text_of("cuda: no memory on the GPU for ", doing)};
    default: break;
  }
  return {Code::internal, text_of("cuda: ", doing, ": ", cudaGetErrorString(error), " (",
                                  cudaGetErrorName(error), ")")};
}

struct Facts {
  std::string name, isa;
  Machine machine{};
};

// Asked once a device; the strings are what Machine's views look at.
Status facts_of(int device, const Facts*& out) {
  static std::mutex mutex;
  static std::map<int, Facts> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(device); found != known.end()) {
    out = &found->second;
    return {};
  }
  cudaDeviceProp p{};
  if (Status status = status_of(cudaGetDeviceProperties(&p, device), "asking for properties");
      !status.ok()) {
    return status;
  }
  int compiled_for = 0;
  if (Status status =
          status_of(static_cast<cudaError_t>(probe_kernel(compiled_for)), "looking for a kernel");
      !status.ok()) {
    return status;
  }
  // What kernels can do is what they were compiled for.
  int sm = p.major * 10 + p.minor;
  if (compiled_for > 0) sm = std::min(sm, compiled_for);
  Facts& facts = known[device];
  facts.name = p.name;
  facts.isa = text_of("sm_", p.major, p.minor);
  facts.machine = {.name = facts.name,
                   .isa = facts.isa,
                   .threads = 0,
                   .l1 = static_cast<std::int64_t>(p.sharedMemPerMultiprocessor),
                   .l2 = p.l2CacheSize,
                   .l3 = 0,
                   .tuning = {},
                   .gpu = {.sm = sm,
                           .processors = p.multiProcessorCount,
                           .block_threads = p.maxThreadsPerBlock,
                           .processor_threads = p.maxThreadsPerMultiProcessor,
                           .block_shared = static_cast<int>(p.sharedMemPerBlockOptin)}};
  out = &facts;
  return {};
}

// Where there is one GPU the driver need not be asked which it is, for every call.
cudaError_t current_device(int& device) {
  static const bool only_one = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count == 1;
  }();
  device = 0;
  return only_one ? cudaSuccess : cudaGetDevice(&device);
}

Status current(const Facts*& out) {
  int device = 0;
  if (Status status = status_of(current_device(device), "asking for the current GPU");
      !status.ok()) {
    return status;
  }
  return facts_of(device, out);
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

Status cuda_status(int error, std::string_view doing) {
  return status_of(static_cast<cudaError_t>(error), doing);
}

Status launch_status(std::string_view variant) {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? Status{} : status_of(error, text_of("launching ", variant));
}

Status allow_shared(const void* kernel, std::size_t bytes) {
  // Of the 48 KB that every kernel may have, ours use up to 8 in declared variables.
  constexpr std::size_t usual = 40 << 10;
  if (bytes <= usual) return {};
  int device = 0;
  cudaGetDevice(&device);
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> allowed;
  const std::lock_guard lock(mutex);
  std::size_t& most = allowed[{device, kernel}];
  if (bytes <= most) return {};
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) {
    most = bytes;
    return {};
  }
  cudaGetLastError();
  return status_of(error, text_of("asking for ", bytes, " bytes of shared memory"));
}

namespace gpu {

Status available() {
  const Facts* facts = nullptr;
  return current(facts);
}

Status machine(Machine& out) {
  const Facts* facts = nullptr;
  if (Status status = current(facts); !status.ok()) return status;
  out = facts->machine;
  return {};
}

Versions versions() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  …": the first word with a number.
  std::ifstream file("/proc/driver/nvidia/version");
  std::string driver;
  for (std::string word; driver.empty() && file >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) driver = word;
  }
  return {driver, version_text(CUDART_VERSION)};
}

OnDevice::OnDevice(int device) {
  int current = -1;
  if (device < 0 || current_device(current) != cudaSuccess || current == device) return;
  if (cudaSetDevice(device) == cudaSuccess) before_ = current;
}

OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

Status check_reachable(std::string_view argument, const void* data) {
  const auto reachable = [&] {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, data) == cudaSuccess &&
           attributes.devicePointer != nullptr;
  };
  if (reachable()) return {};
  // A thread that has not been on the GPU yet knows of no memory there. Choosing the GPU that it
  // has anyway takes it there.
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess &&
      reachable()) {
    return {};
  }
  cudaGetLastError();
  return {Code::invalid_argument,
          text_of(argument, ": address ", data, " is not memory that the GPU can reach")};
}

Status workspace(void* stream, std::size_t bytes, std::byte*& out) {
  out = nullptr;
  if (bytes == 0) return {};
  int device = 0;
  cudaGetDevice(&device);
  static std::mutex mutex;
  // Never destroyed: at exit the driver may be gone before it. What was too small is kept, too: a
  // graph may have been captured with it. Each is twice as large as the one before, so that all are
  // not twice the last.
  using Owner = std::tuple<int, void*, std::thread::id>;
  static std::map<Owner, std::vector<Buffer>>& kept = *new std::map<Owner, std::vector<Buffer>>;
  const std::lock_guard lock(mutex);
  // One handle, but a stream for each thread.
  const bool of_thread = stream_of(stream) == cudaStreamPerThread;
  const Owner owner{device, stream, of_thread ? std::this_thread::get_id() : std::thread::id()};
  std::vector<Buffer>& buffers = kept[owner];
  const std::size_t last = buffers.empty() ? 0 : buffers.back().size();
  if (last < bytes) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream_of(stream), &capture);
    if (capture != cudaStreamCaptureStatusNone) {
      return {Code::unsupported,
              text_of("workspace: ", bytes,
                      " bytes cannot be allocated while the stream is captured;"
                      " run the op once before, or pass a workspace in the context")};
    }
    Buffer more;
    if (Status status = more.allocate(std::max(bytes, 2 * last)); !status.ok()) {
      if (status = more.allocate(bytes); !status.ok()) return status;
    }
    buffers.push_back(std::move(more));
  }
  out = buffers.back().data();
  return {};
}

void Buffer::Free::operator()(std::byte* data) const { cudaFree(data); }

Status Buffer::allocate(std::size_t bytes) {
  void* data = nullptr;
  const Status status =
      status_of(cudaMalloc(&data, bytes), text_of("an array of ", bytes, " bytes"));
  if (!status.ok()) return status;
  data_.reset(static_cast<std::byte*>(data));
  size_ = bytes;
  return {};
}

Status synchronize() { return status_of(cudaDeviceSynchronize(), "running"); }

}  // namespace gpu
}  // namespace onepass
