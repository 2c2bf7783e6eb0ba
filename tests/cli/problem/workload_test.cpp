// Workload files: a problem per line, and mistakes by file and line.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "cli/problem/case.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "tests/support/problem.hpp"

namespace onepass::cli {
namespace {

// A file that is gone when the test is.
class Workload {
 public:
  explicit Workload(const std::string& text)
      : path_(testing::TempDir() + "onepass_case_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt") {
    std::ofstream(path_) << text;
  }
  ~Workload() { std::remove(path_.c_str()); }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(WorkloadTest, CommentsBlanksAndTheDefaultOp) {
  const Workload file(
      "# a comment\n"
      "\n"
      "4x4 f16   # and one behind a case\n"
      " \t \r\n"
      "softmax 8x8\r\n"
      "#softmax 9x9\n"
      "1x1");  // no newline at the end
  std::vector<Case> cases;
  ASSERT_TRUE(read_workload(file.path(), Op::logsumexp, cases).ok());
  ASSERT_EQ(cases.size(), 3U);
  EXPECT_EQ(to_string(cases[0]), "logsumexp 4x4 f16");
  EXPECT_EQ(to_string(cases[1]), "softmax 8x8 f32");
  EXPECT_EQ(to_string(cases[2]), "logsumexp 1x1 f32");
}

TEST(WorkloadTest, AMistakeIsFoundByFileAndLine) {
  const Workload file("# one\n4x4\n\nsoftmax 4x\n5x5\n");
  std::vector<Case> cases;
  const Status status = read_workload(file.path(), Op::softmax, cases);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "workload: " + file.path() + ":4: problem: bad shape '4x'");
}

TEST(WorkloadTest, WhatCannotBeReadIsNamed) {
  std::vector<Case> cases;
  const std::string missing = testing::TempDir() + "onepass_no_such_file.txt";
  const Status status = read_workload(missing, Op::softmax, cases);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "workload: " + missing + ": cannot open: No such file or directory");
  const Status folder = read_workload(testing::TempDir(), Op::softmax, cases);
  EXPECT_EQ(folder.message(), "workload: " + testing::TempDir() + ": cannot read: Is a directory");
  EXPECT_TRUE(cases.empty());
}

TEST(WorkloadTest, TheFilesOfThisRepositoryParse) {
  for (const char* name : {"demo.txt", "perf_softmax_cpu.txt"}) {
    std::vector<Case> cases;
    const Status status =
        read_workload(std::string(ONEPASS_SOURCE_DIR "/workloads/") + name, Op::softmax, cases);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_GE(cases.size(), 5U) << name;
  }
}

TEST(WorkloadTest, EveryOptionOfAGpuHasAPlan) {
  std::vector<Case> cases;
  const Status status =
      read_workload(ONEPASS_SOURCE_DIR "/workloads/perf_options.txt", Op::softmax, cases);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(cases.size(), 44U);
  for (const Case& c : cases) {
    EXPECT_EQ(name(c.device), "cuda") << to_string(c);
    EXPECT_TRUE(choose(problem_of(c), *find_machine("h200"))) << to_string(c);
  }
}

}  // namespace
}  // namespace onepass::cli
