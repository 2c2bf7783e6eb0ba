// What verifying and measuring on a GPU takes beside the library: copies, a kernel that comes late,
// a stopwatch. In a build without CUDA the same functions answer that there is none.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "onepass/status.hpp"
#include "runtime/gpu.hpp"

namespace onepass::gpu {

Status upload(std::byte* to, const void* from, std::size_t bytes);
Status download(void* to, const std::byte* from, std::size_t bytes);
// Queued on the default stream.
Status copy(std::byte* to, const std::byte* from, std::size_t bytes);
Status fill(std::byte* to, int value, std::size_t bytes);
// Queues a kernel that lets the next one begin, and takes its time: until it ends the first bytes
// of the arrays (of kMostLate of them) are all ones. Who does not wait for it reads these, or finds
// what it wrote undone.
inline constexpr std::size_t kMostLate = 32;
Status arrive_late(std::span<const std::span<std::byte>> arrays);

// Points in the default stream's time.
class Stopwatch {
 public:
  explicit Stopwatch(std::size_t marks);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void mark(std::size_t index);
  // Between two marks, once both are reached; NaN when they were never set.
  double microseconds(std::size_t from, std::size_t to) const;

 private:
  struct Events;
  std::unique_ptr<Events> events_;
};

// What lies between is what a profiler looks at.
void profiler_start();
void profiler_stop();

}  // namespace onepass::gpu
