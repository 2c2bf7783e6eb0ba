#include "cli/files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace onepass::cli {
namespace {

using Pieces = std::initializer_list<std::string_view>;

// Whether another path would do. A disk that is full, or broken, is not the caller's mistake.
bool is_path_at_fault(int error) {
  switch (error) {
    case EACCES:
    case EEXIST:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENODEV:
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case EPERM: return true;
    default: return false;
  }
}

Status failed(const std::string& path, std::string_view action, int error) {
  const Status named = file_error(path, fmt::format("{}: {}", action, std::strerror(error)));
  return is_path_at_fault(error) ? named : Status{Code::unsupported, named.message()};
}

// errno, or 0.
int write_all(int fd, Pieces pieces) {
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = ::write(fd, piece.data(), piece.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      piece.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  return 0;
}

// A new file of a name nobody has, gone again unless it was kept.
class TemporaryFile {
 public:
  // Not named after the target, whose name may already be as long as a name can be.
  explicit TemporaryFile(const std::filesystem::path& directory) {
    static std::atomic<unsigned> count = 0;
    constexpr int kAttempts = 1000;  // stale ones of a killed process that had our number
    for (int i = 0; i < kAttempts && file_ < 0; ++i) {
      path_ = (directory / fmt::format(".onepass-{}-{}.tmp", ::getpid(), count++)).string();
      file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      error_ = file_ < 0 ? errno : 0;
      if (error_ != 0 && error_ != EEXIST && error_ != EINTR) break;
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ < 0 || kept_) return;
    (void)::unlink(path_.c_str());
  }

  int descriptor() const { return file_; }
  int error() const { return error_; }

  // errno, or 0.
  int rename_to(const std::string& target) {
    kept_ = std::rename(path_.c_str(), target.c_str()) == 0;
    return kept_ ? 0 : errno;
  }

 private:
  std::string path_;
  int file_ = -1;
  int error_ = 0;
  bool kept_ = false;
};

Status write_directly(const std::string& path, Pieces pieces) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return failed(path, "cannot write", errno);
  int error = write_all(file.get(), pieces);
  if (const int at_close = file.close(); error == 0) error = at_close;
  return error == 0 ? Status() : failed(path, "cannot write", error);
}

// mode: of the file that is replaced, or 0 when there is none.
Status write_and_rename(const std::string& path, const std::string& target, mode_t mode,
                        Pieces pieces) {
  const std::filesystem::path directory = std::filesystem::path(target).parent_path();
  TemporaryFile temporary(directory.empty() ? "." : directory);
  if (temporary.error() != 0) return failed(path, "cannot write", temporary.error());
  Descriptor file(temporary.descriptor());
  int error = write_all(file.get(), pieces);
  if (error == 0 && mode != 0 && ::fchmod(file.get(), mode & 07777) != 0) error = errno;
  if (const int at_close = file.close(); error == 0) error = at_close;
  if (error == 0) error = temporary.rename_to(target);
  return error == 0 ? Status() : failed(path, "cannot write", error);
}

}  // namespace

int Descriptor::close() {
  const int fd = std::exchange(fd_, -1);
  return fd >= 0 && ::close(fd) != 0 ? errno : 0;
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      // Not blocking: otherwise a pipe without a writer would hang here, before it is refused.
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
      error_(errno) {}

Status InputFile::check() {
  if (file_.get() < 0) return failed(path_, "cannot open", error_);
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return failed(path_, "cannot read", errno);
  if (S_ISDIR(info.st_mode)) return failed(path_, "cannot read", EISDIR);
  if (!S_ISREG(info.st_mode)) return file_error(path_, "cannot read: not a regular file");
  size_ = static_cast<std::uint64_t>(info.st_size);
  return {};
}

Status InputFile::read(void* to, std::size_t size) {
  char* out = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::read(file_.get(), out, size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(path_, "cannot read", errno);
    if (got == 0) return file_error(path_, "became shorter while it was read");
    out += got;
    size -= static_cast<std::size_t>(got);
    read_ += static_cast<std::uint64_t>(got);
  }
  return {};
}

Status file_error(const std::string& path, std::string_view what) {
  return {Code::invalid_argument, fmt::format("{}: {}", path.empty() ? "''" : path, what)};
}

Status read_file(const std::string& path, std::string& contents) {
  InputFile file(path);
  if (const Status status = file.check(); !status.ok()) return status;
  constexpr std::uint64_t kLongestText = 1 << 28;  // more is a mistake, and may not fit in memory
  if (file.size() > kLongestText) {
    return file_error(path, fmt::format("cannot read: {} bytes of text, more than the {} allowed",
                                        file.size(), kLongestText));
  }
  std::string read(file.size(), '\0');
  if (const Status status = file.read(read.data(), read.size()); !status.ok()) return status;
  contents = std::move(read);
  return {};
}

Status write_pieces_atomically(const std::string& path, Pieces pieces) {
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) {
    if (errno != ENOENT) return failed(path, "cannot write", errno);
    return write_and_rename(path, path, 0, pieces);
  }
  if (S_ISDIR(old.st_mode)) return failed(path, "cannot write", EISDIR);
  if (S_ISCHR(old.st_mode) || S_ISFIFO(old.st_mode)) return write_directly(path, pieces);
  if (!S_ISREG(old.st_mode)) return file_error(path, "cannot write: not a regular file");
  // A rename asks only the directory; a file that is read-only is so for a reason.
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) {
    return failed(path, "cannot write", errno);
  }
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) return failed(path, "cannot write", error.value());
  return write_and_rename(path, target.string(), old.st_mode, pieces);
}

Status write_file_atomically(const std::string& path, std::string_view contents) {
  return write_pieces_atomically(path, {contents});
}

Status flush_output() {
  const bool lost = std::ferror(stdout) != 0;  // earlier, for a reason that is gone by now
  if (std::fflush(stdout) != 0) return output_error(errno);
  return lost ? output_error(0) : Status();
}

Status output_error(int error) {
  std::string what = "standard output: cannot write";
  if (error != 0) what += fmt::format(": {}", std::strerror(error));
  return {Code::unsupported, std::move(what)};
}

}  // namespace onepass::cli
