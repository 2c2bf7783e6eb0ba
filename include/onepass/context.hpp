// Context: where an op runs. Cheap to copy; safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "onepass/plan.hpp"
#include "onepass/status.hpp"

namespace onepass {

enum class Device : std::uint8_t { cpu, cuda };

constexpr std::string_view name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

class Context {
 public:
  // On the calling thread and up to threads − 1 helpers; 0: as many as the machine has cores.
  static Context cpu(int threads = 0) {
    Context context(Device::cpu);
    context.threads_ = threads;
    return context;
  }

  // On the GPU that is current in the calling thread, in the order of a stream: a cudaStream_t, or
  // null for the default one. An op then returns as soon as its work is queued; tensors, those of
  // the options included, lie in memory that the GPU can reach.
  static Context cuda(void* stream = nullptr) {
    Context context(Device::cuda);
    context.stream_ = stream;
    return context;
  }

  // Memory of the caller's for the partial results of a GPU op: Plan::scratch_bytes of it, 16-byte
  // aligned, untouched by others until the op is done. Without it the library keeps a buffer for
  // each stream, and grows it when an op first needs more.
  Context with_workspace(void* data, std::size_t bytes) const {
    Context context = *this;
    context.workspace_ = data;
    context.workspace_bytes_ = bytes;
    return context;
  }

  // The caller vouches for its pointers. Otherwise a GPU op asks the driver about each, and refuses
  // what the GPU cannot reach: to a kernel that is a fault that no later call survives.
  Context trusting() const {
    Context context = *this;
    context.trusts_ = true;
    return context;
  }

  // An op then checks its arguments and plans, tells here what it would do and why, and
  // does nothing else.
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

// Why the user's tuning file for the current GPU is not used (the library's own table is); ok where
// it is, and where there is none.
Status tuning_status();

}  // namespace onepass
