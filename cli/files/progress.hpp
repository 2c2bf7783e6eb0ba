// Progress: one line on the terminal about work that takes longer than a second.
//
// Silent for quick work and wherever stderr is not a terminal, so logs and pipes stay clean.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace onepass::cli {

class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress();  // erases the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // One more of the total is done; detail says which, or what comes next.
  void step(std::string_view detail = {});

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_draw_;
};

// The line itself, no wider than width: "what [####----] 3/9  33 %  0:05, 0:10 left  detail". What
// does not fit goes, the least needed first: the detail, the bar, the end of the rest.
std::string progress_line(std::string_view what, std::int64_t done, std::int64_t total,
                          double elapsed_seconds, std::string_view detail, std::size_t width);

}  // namespace onepass::cli
