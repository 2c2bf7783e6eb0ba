#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include "cli/gpu/apparatus.hpp"
#include "runtime/launch.hpp"

namespace onepass::gpu {

Status upload(std::byte* to, const void* from, std::size_t bytes) {
  return cuda_status(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the GPU");
}

Status download(void* to, const std::byte* from, std::size_t bytes) {
  return cuda_status(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
}

Status copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr),
                     "copying");
}

Status fill(std::byte* to, int value, std::size_t bytes) {
  return cuda_status(cudaMemsetAsync(to, value, bytes, nullptr), "filling");
}

struct Stopwatch::Events {
  std::vector<cudaEvent_t> list;
};

Stopwatch::Stopwatch(std::size_t marks) : events_(std::make_unique<Events>()) {
  events_->list.resize(marks);
  for (cudaEvent_t& event : events_->list) cudaEventCreate(&event);
}

Stopwatch::~Stopwatch() {
  for (cudaEvent_t event : events_->list) cudaEventDestroy(event);
}

void Stopwatch::mark(std::size_t index) { cudaEventRecord(events_->list[index], nullptr); }

double Stopwatch::microseconds(std::size_t from, std::size_t to) const {
  float milliseconds = NAN;
  if (cudaEventElapsedTime(&milliseconds, events_->list[from], events_->list[to]) != cudaSuccess) {
    cudaGetLastError();
    return NAN;
  }
  return milliseconds * 1e3;
}

void profiler_start() { cudaProfilerStart(); }
void profiler_stop() { cudaProfilerStop(); }

}  // namespace onepass::gpu
