// What goes to the terminal: tables and the progress line.
// Not under sanitizers: lays out text.
#include "cli/files/table.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cli/files/progress.hpp"

namespace onepass::cli {
namespace {

Table sample() {
  Table table({{"variant"}, {"µs", Align::right}, {"× oneDNN", Align::right}, {"note"}});
  table.add({"cpu", "1234.5", "1.75×", "chosen"});
  table.add({"online|two", "7", "×"});
  return table;
}

TEST(TableTest, TextAlignsAndHasNoTrailingBlanks) {
  EXPECT_EQ(sample().text(),
            "variant         µs  × oneDNN  note\n"
            "----------  ------  --------  ------\n"
            "cpu         1234.5     1.75×  chosen\n"
            "online|two       7         ×\n");
}

TEST(TableTest, MarkdownAlignsAndEscapes) {
  EXPECT_EQ(sample().markdown(),
            "| variant     |     µs | × oneDNN | note   |\n"
            "| ----------- | -----: | -------: | ------ |\n"
            "| cpu         | 1234.5 |    1.75× | chosen |\n"
            "| online\\|two |      7 |        × |        |\n");
}

TEST(TableTest, CellsTooFewOrTooManyOrBroken) {
  Table table({{"a"}, {"b"}});
  EXPECT_TRUE(table.empty());
  table.add({});
  table.add({"1", "2", "3"});
  table.add({"x\ny", "z"});
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.text(), "a    b\n---  -\n\n1    2\nx y  z\n");
  EXPECT_EQ(table.markdown(),
            "| a   | b   |\n| --- | --- |\n|     |     |\n| 1   | 2   |\n| x y | z   |\n");
}

TEST(TableTest, NoRowsOrNoColumns) {
  EXPECT_EQ(Table({{"only", Align::right}}).text(), "only\n----\n");
  Table none({});
  none.add({"x"});
  EXPECT_EQ(none.text(), "");
  EXPECT_EQ(none.markdown(), "");
}

TEST(TableTest, WidthCountsCharacters) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("4096×4096 µs −"), 14u);
  EXPECT_EQ(display_width("\xe2\x80\x94"), 1u);
}

TEST(TableTest, FitNeverCutsACharacter) {
  EXPECT_EQ(fit("a×b", 0), "");
  EXPECT_EQ(fit("a×b", 1), "a");
  EXPECT_EQ(fit("a×b", 2), "a×");
  EXPECT_EQ(fit("a×b", 3), "a×b");
  EXPECT_EQ(fit("a×b", 9), "a×b");
}

TEST(ProgressTest, LineShowsShareAndTimes) {
  EXPECT_EQ(progress_line("verify", 3, 12, 5, "softmax 4×4", 120),
            "verify [#######-----------------------] 3/12  25 %  0:05, 0:15 left  softmax 4×4");
  EXPECT_EQ(progress_line("bench", 12, 12, 3725, "", 120),
            "bench [##############################] 12/12  100 %  1:02:05");
  EXPECT_EQ(progress_line("bench", 999, 1000, 999, "", 120),
            "bench [#############################-] 999/1000  99 %  16:39, 0:01 left");
  EXPECT_EQ(progress_line("x", 0, 0, 0, "", 120),
            "x [##############################] 0/0  100 %  0:00");
  EXPECT_EQ(progress_line("x", 9, 3, 1, "", 120),
            "x [##############################] 9/3  100 %  0:01");
}

TEST(ProgressTest, LineObeysTheWidth) {
  for (std::size_t width = 0; width < 130; ++width) {
    const std::string line = progress_line("verify ×", 3, 12, 5, "softmax 4×4 and more", width);
    EXPECT_LE(display_width(line), width);
    EXPECT_TRUE(line.empty() || line.back() != ' ');
  }
  EXPECT_EQ(progress_line("verify", 3, 12, 5, "detail", 50),
            "verify [###----------] 3/12  25 %  0:05, 0:15 left");
  EXPECT_EQ(progress_line("verify", 3, 12, 5, "detail", 40),
            "verify 3/12  25 %  0:05, 0:15 left  deta");
  EXPECT_EQ(progress_line("verify", 3, 12, 5, "detail", 11), "verify 3/12");
}

// What a child writes to stderr when stderr is the given descriptor.
template <class Work>
std::string stderr_of(int to, int from, Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(to, STDERR_FILENO);
    ::setenv("TERM", "xterm", 1);
    work();
    ::_exit(0);
  }
  ::close(to);
  std::string out;
  char buffer[4096];
  // A terminal answers EIO, a pipe 0, when the other side is gone.
  for (ssize_t got; (got = ::read(from, buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(from);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return out;
}

template <class Work>
std::string on_terminal(Work work) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return "no terminal";
  const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  const winsize size{24, 40, 0, 0};
  ::ioctl(master, TIOCSWINSZ, &size);
  return stderr_of(terminal, master, work);
}

void steps(int count, std::chrono::milliseconds each) {
  Progress progress("work", count);
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_for(each);
    progress.step("a detail that is longer than the terminal is wide");
  }
}

TEST(ProgressTest, QuickWorkShowsNothing) {
  EXPECT_EQ(on_terminal([] { steps(5, std::chrono::milliseconds(2)); }), "");
}

TEST(ProgressTest, LongWorkShowsOneLineAndErasesIt) {
  const auto start = std::chrono::steady_clock::now();
  const std::string out = on_terminal([] { steps(140, std::chrono::milliseconds(10)); });
  constexpr std::string_view kErase = "\r\x1b[K";
  ASSERT_TRUE(out.starts_with(std::string(kErase) + "work ")) << out;
  EXPECT_TRUE(out.ends_with(kErase)) << out;
  EXPECT_EQ(out.find('\n'), std::string::npos) << out;
  // At most ten draws a second, however slow the machine is; without a limit some forty.
  std::size_t draws = 0;
  for (std::size_t at = 0; (at = out.find(kErase, at)) != std::string::npos; ++draws) {
    const std::size_t begin = at + kErase.size();
    at = std::min(out.find(kErase, begin), out.size());
    EXPECT_LT(display_width(std::string_view(out).substr(begin, at - begin)), 40u);
    if (at == out.size()) break;
  }
  EXPECT_GE(draws, 2u);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LE(draws, static_cast<std::size_t>(elapsed / std::chrono::milliseconds(100)));
}

TEST(ProgressTest, LongWorkIntoAPipeShowsNothing) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(stderr_of(ends[1], ends[0], [] { steps(12, std::chrono::milliseconds(100)); }), "");
}

}  // namespace
}  // namespace onepass::cli
