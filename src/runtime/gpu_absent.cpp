// A build without CUDA: every question about the GPU has the same answer.

#include <cmath>

#include "runtime/gpu.hpp"

namespace onepass::gpu {
namespace {

Status absent() {
  return {Code::unsupported,
          "cuda: this build has no GPU parts (nvcc was not found, or was switched off)"};
}

}  // namespace

Status available() { return absent(); }
Status machine(Machine&) { return absent(); }
Versions versions() { return {}; }
OnDevice::OnDevice(int) {}
OnDevice::~OnDevice() = default;
Status check_reachable(std::string_view, const void*) { return absent(); }
Status workspace(void*, std::size_t, std::byte*&) { return absent(); }

void Buffer::Free::operator()(std::byte*) const {}
Status Buffer::allocate(std::size_t) { return absent(); }

Status upload(std::byte*, const void*, std::size_t) { return absent(); }
Status download(void*, const std::byte*, std::size_t) { return absent(); }
Status copy(std::byte*, const std::byte*, std::size_t) { return absent(); }
Status fill(std::byte*, int, std::size_t) { return absent(); }
Status arrive_late(std::span<const std::span<std::byte>>) { return absent(); }
Status synchronize() { return absent(); }

struct Stopwatch::Events {};
Stopwatch::Stopwatch(std::size_t) {}
Stopwatch::~Stopwatch() = default;
void Stopwatch::mark(std::size_t) {}
double Stopwatch::microseconds(std::size_t, std::size_t) const { return NAN; }

void profiler_start() {}
void profiler_stop() {}

}  // namespace onepass::gpu
