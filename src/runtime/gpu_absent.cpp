// A build without CUDA: every question about the GPU has the same answer.

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

Status synchronize() { return absent(); }

}  // namespace onepass::gpu
