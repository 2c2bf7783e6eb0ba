// A file is written whole or not at all, and a failure leaves nothing behind.
#include "cli/files/files.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cli/files/npy.hpp"

namespace onepass::cli {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    std::string pattern = testing::TempDir() + "onepass-files-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = pattern;
  }
  ~FilesTest() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      out.push_back(entry.path().filename().string());
    }
    std::ranges::sort(out);
    return out;
  }

  static void put(const std::string& path, std::string_view contents) {
    std::ofstream(path, std::ios::binary) << contents;
  }

  static std::string get(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static mode_t mode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }

  std::string directory_;
};

// A disk that is full after so many bytes, as far as this process can tell.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST_F(FilesTest, WritesAndReplaces) {
  ASSERT_TRUE(write_file_atomically(path("a"), "one").ok());
  EXPECT_EQ(get(path("a")), "one");
  ASSERT_TRUE(write_file_atomically(path("a"), "").ok());
  EXPECT_EQ(get(path("a")), "");
  const std::string large(1 << 20, 'z');
  ASSERT_TRUE(write_pieces_atomically(path("a"), {"two, ", large, "", "end"}).ok());
  EXPECT_EQ(get(path("a")), "two, " + large + "end");
  EXPECT_EQ(names(), Names({"a"}));
}

TEST_F(FilesTest, WritesInTheCurrentDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  const Status status = write_file_atomically("bare", "x");
  fs::current_path(before);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(names(), Names({"bare"}));
}

TEST_F(FilesTest, LongestNameStillFits) {
  const std::string longest(255, 'n');
  const Status status = write_file_atomically(path(longest), "x");
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(write_file_atomically(path(longest + "n"), "x").message(),
            path(longest + "n") + ": cannot write: File name too long");
  EXPECT_EQ(names(), Names({longest}));
}

TEST_F(FilesTest, ModeFollowsTheUmaskOrTheOldFile) {
  const mode_t umask = ::umask(027);
  ASSERT_TRUE(write_file_atomically(path("new"), "x").ok());
  put(path("old"), "x");
  ASSERT_EQ(::chmod(path("old").c_str(), 0604), 0);
  ASSERT_TRUE(write_file_atomically(path("old"), "y").ok());
  ::umask(umask);
  EXPECT_EQ(mode(path("new")), 0640u);
  EXPECT_EQ(mode(path("old")), 0604u);
}

TEST_F(FilesTest, LinkKeepsPointing) {
  fs::create_directory(path("far"));
  put(path("far/file"), "old");
  fs::create_symlink("far/file", path("link"));
  ASSERT_TRUE(write_file_atomically(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(get(path("far/file")), "new");
  EXPECT_EQ(names(), Names({"far", "link"}));
}

TEST_F(FilesTest, PlacesThatCannotBeWritten) {
  put(path("file"), "x");
  fs::create_directory(path("directory"));
  const std::pair<std::string, std::string> cases[] = {
      {path("missing/out"), "No such file or directory"},
      {path("file/out"), "Not a directory"},
      {path("directory"), "Is a directory"},
      {path("directory/"), "Is a directory"},
      {path("new/"), "No such file or directory"},
  };
  for (const auto& [where, why] : cases) {
    const Status status = write_file_atomically(where, "y");
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(status.message(), where + ": cannot write: " + why);
  }
  EXPECT_EQ(write_file_atomically("", "y").message(),
            "'': cannot write: No such file or directory");
  EXPECT_EQ(names(), Names({"directory", "file"}));
  EXPECT_TRUE(fs::is_empty(path("directory")));
  EXPECT_EQ(get(path("file")), "x");
}

TEST_F(FilesTest, FullDiskKeepsTheOldFileAndNothingElse) {
  put(path("old"), "old");
  const std::string large(100000, 'z');
  {
    const FileSizeLimit limit(5000);
    EXPECT_EQ(write_file_atomically(path("old"), large).message(),
              path("old") + ": cannot write: File too large");
    EXPECT_EQ(write_file_atomically(path("new"), large).message(),
              path("new") + ": cannot write: File too large");
    const std::int64_t shape[] = {100000};
    const Status status = write_npy(path("old"), DType::u8, shape, std::as_bytes(std::span(large)));
    EXPECT_EQ(status.message(), path("old") + ": cannot write: File too large");
    EXPECT_EQ(status.code(), Code::unsupported) << "not the caller's mistake";
    EXPECT_TRUE(write_file_atomically(path("small"), "fits").ok());
  }
  EXPECT_EQ(get(path("old")), "old");
  EXPECT_EQ(names(), Names({"old", "small"}));
}

TEST_F(FilesTest, DeviceIsWrittenNotReplaced) {
  EXPECT_TRUE(write_file_atomically("/dev/null", "x").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const Status full = write_file_atomically("/dev/full", "x");
  EXPECT_EQ(full.message(), "/dev/full: cannot write: No space left on device");
  EXPECT_EQ(full.code(), Code::unsupported);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(FilesTest, PipeIsWrittenNotReplaced) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = get(path("pipe")); });
  const Status status = write_file_atomically(path("pipe"), "through");
  reader.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(FilesTest, ReadOnlyFileAndDirectoryStayAsTheyAre) {
  put(path("file"), "old");
  fs::create_directory(path("closed"));
  ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
  ASSERT_EQ(::chmod(path("file").c_str(), 0444), 0);
  ASSERT_EQ(::chmod(path("closed").c_str(), 0555), 0);
  // To root nothing is read-only.
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "root, and cannot become anybody else";
  const Status file = write_file_atomically(path("file"), "new");
  const Status closed = write_file_atomically(path("closed/out"), "new");
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(file.message(), path("file") + ": cannot write: Permission denied");
  EXPECT_EQ(closed.message(), path("closed/out") + ": cannot write: Permission denied");
  EXPECT_EQ(get(path("file")), "old");
  EXPECT_EQ(names(), Names({"closed", "file"}));
  EXPECT_TRUE(fs::is_empty(path("closed")));
}

TEST_F(FilesTest, StaleTemporariesAreSteppedOver) {
  // Those of a process that was killed and had our number.
  for (int i = 0; i < 300; ++i) {
    put(path(".onepass-" + std::to_string(::getpid()) + "-" + std::to_string(i) + ".tmp"), "stale");
  }
  ASSERT_TRUE(write_file_atomically(path("a"), "x").ok());
  EXPECT_EQ(get(path("a")), "x");
  EXPECT_EQ(names().size(), 301u);
}

TEST_F(FilesTest, ThreadsDoNotMeetInOneTemporary) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string contents(100000, static_cast<char>('a' + i));
      for (int round = 0; round < 20; ++round) {
        EXPECT_TRUE(write_file_atomically(path("same"), contents).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string last = get(path("same"));
  EXPECT_EQ(last, std::string(100000, last.empty() ? '?' : last[0]));
  EXPECT_EQ(names(), Names({"same"}));
}

TEST_F(FilesTest, ReadsWhole) {
  const std::string contents("a\0b\n", 4);
  put(path("a"), contents);
  std::string got;
  ASSERT_TRUE(read_file(path("a"), got).ok());
  EXPECT_EQ(got, contents);
  EXPECT_EQ(read_file(path("b"), got).message(),
            path("b") + ": cannot open: No such file or directory");
  fs::resize_file(path("a"), std::uintmax_t{1} << 40);
  EXPECT_EQ(read_file(path("a"), got).message(),
            path("a") +
                ": cannot read: 1099511627776 bytes of text, more than the 268435456 "
                "allowed");
  EXPECT_EQ(got, contents);
}

TEST_F(FilesTest, OutputMayBeTheInput) {
  const std::string values(32, 'v');
  const std::int64_t shape[] = {2, 4};
  ASSERT_TRUE(write_npy(path("a"), DType::f32, shape, std::as_bytes(std::span(values))).ok());
  Array array;
  ASSERT_TRUE(read_npy(path("a"), false, array).ok());
  ASSERT_TRUE(write_npy(path("a"), array.dtype, array.shape, array.bytes()).ok());
  Array again;
  ASSERT_TRUE(read_npy(path("a"), false, again).ok());
  EXPECT_TRUE(std::ranges::equal(again.bytes(), std::as_bytes(std::span(values))));
  EXPECT_EQ(names(), Names({"a"}));
}

}  // namespace
}  // namespace onepass::cli
