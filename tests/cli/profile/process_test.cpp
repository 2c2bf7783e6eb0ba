// Other programs: what they print, how they end, and that none can hold us up.
// Not under sanitizers: starts other programs.
#include "cli/profile/process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>

namespace onepass::cli {
namespace {

Ended shell(const std::string& script, double seconds = 30) {
  Ended ended;
  const Status status = run_process({"/bin/sh", "-c", script}, seconds, ended);
  EXPECT_TRUE(status.ok()) << status.message();
  return ended;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(ProcessTest, BothStreamsAndTheExitCode) {
  const Ended ended = shell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(ended.out, "out\n");
  EXPECT_EQ(ended.err, "err\n");
  EXPECT_EQ(ended.exit, 7);
  EXPECT_EQ(ended.signal, 0);
  EXPECT_FALSE(ended.timed_out);
}

TEST(ProcessTest, WordsReachTheProgramAsTheyAre) {
  Ended ended;
  ASSERT_TRUE(run_process({"/bin/echo", "a b", "$HOME", "'\"", ""}, 30, ended).ok());
  EXPECT_EQ(ended.out, "a b $HOME '\" \n");
}

// More than a pipe holds, on both streams at once: reading one after the other would hang.
TEST(ProcessTest, MuchOutputOnBothStreams) {
  const Ended ended = shell(
      "i=0; while [ $i -lt 3000 ]; do printf '%0100d' 0; printf '%0100d' 0 >&2; i=$((i+1)); done");
  EXPECT_EQ(ended.out.size(), 300000u);
  EXPECT_EQ(ended.err.size(), 300000u);
}

TEST(ProcessTest, StdinIsEmptyAndTheLocaleIsC) { EXPECT_EQ(shell("cat; echo $LC_ALL").out, "C\n"); }

TEST(ProcessTest, ASignalIsTold) {
  const Ended ended = shell("kill -SEGV $$");
  EXPECT_EQ(ended.signal, SIGSEGV);
  EXPECT_FALSE(ended.timed_out);
}

TEST(ProcessTest, PastItsTimeItIsKilledWithAllItStarted) {
  Ended ended;
  const double seconds =
      seconds_of([&] { ended = shell("echo begun; sleep 30 & sleep 30; echo no", 0.3); });
  EXPECT_TRUE(ended.timed_out);
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_EQ(ended.out, "begun\n");
  EXPECT_LT(seconds, 10);
}

// What it leaves behind has its streams open.
TEST(ProcessTest, ABackgroundProcessDoesNotHoldUsUp) {
  Ended ended;
  EXPECT_LT(seconds_of([&] { ended = shell("sleep 30 & echo done"); }), 10);
  EXPECT_EQ(ended.out, "done\n");
  EXPECT_EQ(ended.exit, 0);
  EXPECT_FALSE(ended.timed_out);
}

TEST(ProcessTest, AProgramThatCannotBeStarted) {
  Ended ended;
  const Status status = run_process({"/no/such/program"}, 1, ended);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_EQ(status.message(), "cannot start '/no/such/program': No such file or directory");
}

TEST(ProcessTest, Finding) {
  EXPECT_NE(find_program("sh"), "");
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  for (const char* none : {"", "no-such-program", "/no/such/program", "/etc", "/etc/passwd"}) {
    EXPECT_EQ(find_program(none), "") << none;
  }
  EXPECT_TRUE(std::filesystem::exists(own_path())) << own_path();
}

}  // namespace
}  // namespace onepass::cli
