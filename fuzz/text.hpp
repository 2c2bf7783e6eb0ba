// What targets of text share: an input as a file.
#pragma once

#include <string>
#include <string_view>

#include "fuzz/target.hpp"

namespace onepass::fuzz {

inline std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// A file in memory that is opened by its name, like any other.
class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  const std::string& path() const { return path_; }
  void hold(std::string_view contents);

 private:
  int file_;
  std::string path_;
};

}  // namespace onepass::fuzz
