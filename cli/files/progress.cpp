#include "cli/files/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cli/files/table.hpp"

namespace onepass::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuiet{1000};   // work shorter than this shows nothing
constexpr milliseconds kBetween{100};  // draws
constexpr std::string_view kEraseLine = "\r\x1b[K";

bool can_draw() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  // The last column stays free: a character there moves some terminals to the next line, which
  // would then not be erased.
  return (known ? size.ws_col : 80u) - 1u;
}

// Straight to the descriptor in one write, so that the line never appears in halves. What a
// terminal does not take is lost; there is nothing to be done about it.
void put(std::string_view text) {
  const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  (void)written;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, 359999.0));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace

std::string progress_line(std::string_view what, std::int64_t done, std::int64_t total,
                          double elapsed_seconds, std::string_view detail, std::size_t width) {
  constexpr std::size_t kShortestBar = 5, kLongestBar = 30;
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 1;
  // Cut, not rounded: 100 % is the end, not near it.
  std::string counts = fmt::format(" {}/{}  {} %  {}", done, total, static_cast<int>(share * 100),
                                   clock_text(elapsed_seconds));
  if (done > 0 && share < 1) {
    counts += fmt::format(", {} left", clock_text(elapsed_seconds / share * (1 - share)));
  }
  std::string line(what);
  const std::size_t used = display_width(what) + counts.size() + 3;  // and " [" before, "]" after
  if (used + kShortestBar <= width) {
    const std::size_t bar = std::min(width - used, kLongestBar);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(bar));
    line += " [" + std::string(full, '#') + std::string(bar - full, '-') + "]";
  }
  line += counts;
  if (!detail.empty()) line += "  " + std::string(detail);
  line = fit(line, width);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), terminal_(can_draw()), next_draw_(start_ + kQuiet) {}

Progress::~Progress() {
  if (drawn_) put(kEraseLine);
}

void Progress::step(std::string_view detail) {
  ++done_;
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kBetween;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  put(std::string(kEraseLine) +
      progress_line(what_, done_, total_, elapsed, detail, terminal_width()));
  drawn_ = true;
}

}  // namespace onepass::cli
