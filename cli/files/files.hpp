// Files, read and written whole. Every error names the path and what the system said:
// invalid_argument where another path would do, unsupported where the file system could not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "onepass/status.hpp"

namespace onepass::cli {

// The old file or the whole new one, never something between: the bytes go to a temporary file
// beside the target, which is then renamed over it. A symbolic link keeps pointing where it did, a
// file keeps its permissions. Devices and pipes, which cannot be replaced, are written directly.
Status write_file_atomically(const std::string& path, std::string_view contents);

// The same of several pieces in a row, so that nobody has to join large ones.
Status write_pieces_atomically(const std::string& path,
                               std::initializer_list<std::string_view> pieces);

// What was printed is out, or lost. Before the program ends: nobody hears of a full disk later.
Status flush_output();
Status output_error(int error);  // errno, or 0 where it is not known

// A regular file of text, whole.
Status read_file(const std::string& path, std::string& contents);

// "path: what is wrong with it", the caller's mistake.
Status file_error(const std::string& path, std::string_view what);

// A file descriptor with an owner.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { (void)close(); }

  int get() const { return fd_; }

  // errno, or 0. Some file systems tell only now that the disk was full.
  int close();

 private:
  int fd_;
};

// A regular file, read from its beginning. Its size is known before anything is read.
class InputFile {
 public:
  explicit InputFile(std::string path);

  Status check();  // call first: whether it could be opened and is a regular file
  Status read(void* to, std::size_t size);

  std::uint64_t size() const { return size_; }
  std::uint64_t left() const { return size_ - read_; }

 private:
  std::string path_;
  Descriptor file_;
  int error_;
  std::uint64_t size_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace onepass::cli
