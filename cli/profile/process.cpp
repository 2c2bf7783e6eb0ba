#include "cli/profile/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/files/files.hpp"

extern char** environ;  // POSIX leaves the declaration to us

namespace onepass::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostOutput = std::size_t{64} << 20;  // a stream; what follows is dropped
constexpr milliseconds kBetweenLooks{20};
// After its end, what it started may still hold the pipes: no longer than this.
constexpr milliseconds kAfterEnd{500};

class Pipe {
 public:
  Pipe() : Pipe(make()) {}

  Descriptor read, write;
  int error;  // errno of its making, or 0

 private:
  struct Ends {
    std::array<int, 2> fds = {-1, -1};
    int error = 0;
  };
  static Ends make() {
    Ends ends;
    if (::pipe2(ends.fds.data(), O_CLOEXEC) != 0) ends.error = errno;
    return ends;
  }
  explicit Pipe(const Ends& ends) : read(ends.fds[0]), write(ends.fds[1]), error(ends.error) {}
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> child_environment() {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("LC_ALL=")) out.emplace_back(*variable);
  }
  out.emplace_back("LC_ALL=C");
  return out;
}

// Between fork and exec: only calls that are safe there. Tells errno through `failure`.
[[noreturn]] void become(char** words, char** environment, int out, int err, int failure) {
  ::setpgid(0, 0);                     // so that a kill reaches all that it starts
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nor does it outlive us
  const int in = ::open("/dev/null", O_RDONLY);
  if (in >= 0 && ::dup2(in, STDIN_FILENO) >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 &&
      ::dup2(err, STDERR_FILENO) >= 0) {
    ::execve(words[0], words, environment);
  }
  const int error = errno;
  const ssize_t written = ::write(failure, &error, sizeof error);
  (void)written;
  ::_exit(127);
}

// Appends what is there; false at the end of the stream.
bool take(int fd, std::string& text) {
  std::array<char, 65536> buffer;  // not set to zero: read fills it
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  const std::size_t room = kMostOutput - std::min(text.size(), kMostOutput);
  text.append(buffer.data(), std::min(static_cast<std::size_t>(got), room));
  return got > 0;
}

// Whether the child has ended. It stays to be waited for, so that its number is nobody else's.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// Reads both streams while the child runs. Ends with the child gone and waited for.
void attend(pid_t child, int out, int err, Clock::time_point deadline, Ended& ended) {
  std::array<pollfd, 2> streams = {pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  const std::array<std::string*, 2> texts = {&ended.out, &ended.err};
  const auto open = [&] { return streams[0].fd >= 0 || streams[1].fd >= 0; };
  bool gone = false;
  while (!gone || (open() && Clock::now() < deadline)) {
    ::poll(streams.data(), streams.size(), static_cast<int>(kBetweenLooks.count()));
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].fd >= 0 && streams[i].revents != 0 && !take(streams[i].fd, *texts[i])) {
        streams[i].fd = -1;
      }
    }
    if (gone) continue;
    if (has_ended(child)) {
      gone = true;
      deadline = Clock::now() + kAfterEnd;
    } else if (!ended.timed_out && Clock::now() >= deadline) {
      ended.timed_out = true;
      ::kill(-child, SIGKILL);
    }
  }
  ::kill(-child, SIGKILL);  // what it left behind
  int status = 0;
  ::waitpid(child, &status, 0);
  ended.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

bool can_run(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

Status run_process(const std::vector<std::string>& words, double seconds, Ended& ended) {
  ended = {};
  const auto cannot = [&](int error) {
    return Status{Code::unsupported,
                  fmt::format("cannot start '{}': {}", words[0], std::strerror(error))};
  };
  Pipe out, err, failure;
  for (const Pipe* pipe : {&out, &err, &failure}) {
    if (pipe->error != 0) return cannot(pipe->error);
  }
  std::vector<std::string> arguments = words;
  std::vector<std::string> variables = child_environment();
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);
  const auto limit = std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e6));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);

  const pid_t child = ::fork();
  if (child < 0) return cannot(errno);
  if (child == 0) {
    become(const_cast<char**>(argument_pointers.data()),
           const_cast<char**>(variable_pointers.data()), out.write.get(), err.write.get(),
           failure.write.get());
  }
  for (Pipe* pipe : {&out, &err, &failure}) (void)pipe->write.close();

  // The end of this stream is the exec; before it, only an error comes.
  int error = 0;
  ssize_t got = 0;
  do got = ::read(failure.read.get(), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(child, nullptr, 0);
    return cannot(error);
  }
  attend(child, out.read.get(), err.read.get(), deadline, ended);
  return {};
}

std::string find_program(const std::string& name) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return can_run(name) ? name : std::string();
  const char* variable = std::getenv("PATH");
  std::string_view path = variable == nullptr ? "" : variable;
  while (!path.empty()) {
    const std::string_view directory = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(directory.size() + 1, path.size()));
    std::string candidate = fmt::format("{}/{}", directory.empty() ? "." : directory, name);
    if (can_run(candidate)) return candidate;
  }
  return {};
}

std::string own_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.string();
}

}  // namespace onepass::cli
