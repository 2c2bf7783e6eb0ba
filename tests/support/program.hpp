// The program as a process: arguments and files in, two streams, files and an exit code out.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.hpp"
#include "cli/files/npy.hpp"
#include "core/number.hpp"

namespace onepass::cli {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline void put(const std::string& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Outcome {
  int exit = -1;  // −1: it did not exit, a signal ended it
  std::string out, err;
};

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string pattern = testing::TempDir() + "onepass-program-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = pattern + "/work";
    streams_ = pattern;
    fs::create_directory(directory_);
  }
  ~ProgramTest() override { fs::remove_all(streams_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  // The names in the working directory.
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(directory_))
      all.insert(entry.path().filename());
    return all;
  }

  // Runs the program in the working directory. `err` may be a terminal to give it for a stderr,
  // `out` a stdout that is not kept.
  Outcome run(const Words& arguments, const Words& environment = {}, int err = -1,
              int out = -1) const {
    Words words = {ONEPASS_CLI};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      const int kept = ::open((streams_ + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (out < 0) out = kept;
      if (err < 0) err = ::open((streams_ + "/err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(err, STDERR_FILENO);
      ::setenv("TERM", "xterm", 1);
      // Under a sanitizer, memory that is not to be had is a null pointer as it is elsewhere.
      const char* asan = std::getenv("ASAN_OPTIONS");
      const std::string options = (asan == nullptr ? "" : asan + std::string(":"));
      ::setenv("ASAN_OPTIONS", (options + "allocator_may_return_null=1").c_str(), 1);
      for (const std::string& variable : environment) {
        const std::size_t equals = variable.find('=');
        ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
      }
      if (::chdir(directory_.c_str()) == 0) ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, get(streams_ + "/out"),
            get(streams_ + "/err")};
  }

  Outcome good(const Words& arguments) const {
    Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit, kDone) << outcome.err << outcome.out;
    EXPECT_EQ(outcome.err, "");
    return outcome;
  }

  // Ends with the code, and says all the words on stderr.
  void bad(const Words& arguments, int exit, std::initializer_list<std::string_view> words) const {
    const std::set<std::string> before = names();
    const Outcome outcome = run(arguments);
    std::string line = "onepass";
    for (const std::string& word : arguments) line += " " + word;
    SCOPED_TRACE(line);
    EXPECT_EQ(outcome.exit, exit) << outcome.err << outcome.out;
    for (const std::string_view word : words) {
      EXPECT_TRUE(contains(outcome.err, word)) << "'" << word << "' is not in: " << outcome.err;
    }
    EXPECT_EQ(names(), before) << "a file was left behind, or taken away";
  }

  void write(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
             const std::vector<double>& values) const {
    Array array;
    ASSERT_TRUE(Array::make(dtype, shape, array).ok());
    for (std::size_t i = 0; i < values.size(); ++i) {
      onepass::write(array.data.data(), dtype, static_cast<std::int64_t>(i), values[i]);
    }
    ASSERT_TRUE(write_npy(path(name), dtype, shape, array.bytes()).ok());
  }

  std::vector<double> read(const std::string& name, DType dtype,
                           const std::vector<std::int64_t>& shape) const {
    Array array;
    const Status status = read_npy(path(name), dtype == DType::bf16, array);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(onepass::name(array.dtype), onepass::name(dtype));
    EXPECT_EQ(array.shape, shape);
    std::size_t count = 1;
    for (const std::int64_t extent : array.shape) count *= static_cast<std::size_t>(extent);
    std::vector<double> values;
    for (std::size_t i = 0; status.ok() && i < count; ++i) {
      values.push_back(
          onepass::read<double>(array.data.data(), array.dtype, static_cast<std::int64_t>(i)));
    }
    return values;
  }

  std::string directory_, streams_;
};

}  // namespace onepass::cli
