// The GPU, as all but kernels see it: no CUDA headers here. In a build without CUDA the
// same functions answer that there is none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/machine.hpp"
#include "onepass/status.hpp"

namespace onepass::gpu {

// Whether an op can run on the current GPU, and if not, why: no CUDA in this build, no GPU, a
// driver that is too old, a GPU that the kernels were not compiled for.
Status available();

// The current GPU, without what was measured on such; `name` and `isa` live as long as the program.
Status machine(Machine& out);

struct Versions {
  std::string driver, cuda;
};
Versions versions();

// Makes another GPU the calling thread's current one, until the end of its scope. A negative
// number, or that of the current one, changes nothing.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;  // to go back to; −1: nothing was changed
};

// An argument must be memory that the GPU can reach.
Status check_reachable(std::string_view argument, const void* data);

// At least `bytes` of memory that stays the stream's until it needs more. Not while the stream is
// being captured, unless it has as much already.
Status workspace(void* stream, std::size_t bytes, std::byte*& out);

// Memory of the GPU.
class Buffer {
 public:
  Status allocate(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// Waits for everything queued; tells what went wrong in any of it.
Status synchronize();

}  // namespace onepass::gpu
