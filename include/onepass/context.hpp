// Context: where an op runs. Cheap to copy; safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "onepass/status.hpp"

namespace onepass {

struct Explanation;

enum class Device : std::uint8_t { cpu, cuda };

constexpr std::string_view name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

class Context {
 public:
  // Runs on the calling thread and up to threads − 1 others; 0: one thread per core.
  static Context cpu(int threads = 0) {
    Context context(Device::cpu);
    context.threads_ = threads;
    return context;
  }

  // Queues work on a stream (a cudaStream_t; null: the default stream) of the calling thread's
  // current GPU. An op returns without waiting for its work. All tensors, those of the options
  // included, must be in memory that the GPU can access.
  static Context cuda(void* stream = nullptr) {
    Context context(Device::cuda);
    context.stream_ = stream;
    return context;
  }

  // Gives GPU ops the caller's memory as their workspace: at least Plan::scratch_bytes, 16-byte
  // aligned, and not used otherwise until the op has finished on the GPU. Without it the library
  // keeps one workspace per stream, which grows when an op first needs more.
  Context with_workspace(void* data, std::size_t bytes) const {
    Context context = *this;
    context.workspace_ = data;
    context.workspace_bytes_ = bytes;
    return context;
  }

  // Skips the check of pointers. Otherwise a GPU op asks the driver about each pointer and refuses
  // one that the GPU cannot access: in a kernel, it would be a fault after which every CUDA call of
  // the process fails.
  Context trusting() const {
    Context context = *this;
    context.trusts_ = true;
    return context;
  }

  // Has an op check its arguments, decide on a plan and store it in `told` with its reasons, and
  // compute nothing.
  Context explaining(Explanation& told) const {
    Context context = *this;
    context.explanation_ = &told;
    return context;
  }

  Device device() const { return device_; }
  int threads() const { return threads_; }
  void* stream() const { return stream_; }
  void* workspace() const { return workspace_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  bool trusts() const { return trusts_; }
  Explanation* explanation() const { return explanation_; }

 private:
  explicit Context(Device device) : device_(device) {}

  Device device_;
  int threads_ = 0;
  void* stream_ = nullptr;
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  bool trusts_ = false;
  Explanation* explanation_ = nullptr;
};

// Why the library ignores the user's tuning file for the current GPU and uses its own table
// instead; ok if it uses the file, or if there is none.
Status tuning_status();

}  // namespace onepass
