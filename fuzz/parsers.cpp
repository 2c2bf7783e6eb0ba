// The readers of files and of words. Whatever they are given they answer, soon and in little
// memory; what they accept can be written, and reads as the same.

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "cli/files/npy.hpp"
#include "cli/measure/results.hpp"
#include "cli/ops/call.hpp"
#include "cli/problem/case.hpp"
#include "cli/profile/ncu.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "fuzz/targets.hpp"
#include "fuzz/text.hpp"
#include "rows/gpu/tuning.hpp"
#include "runtime/host.hpp"

namespace onepass::fuzz {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) finding(what);
}

// A refusal says why, in one line: what a file holds must not reach a terminal as it is.
void require_reason(const Status& status) {
  require(!status.message().empty(), "refused without a word");
}

}  // namespace

MemoryFile::MemoryFile()
    : file_(::memfd_create("onepass-fuzz", MFD_CLOEXEC)),
      path_(fmt::format("/proc/self/fd/{}", file_)) {
  require(file_ >= 0, "no file in memory");
}

MemoryFile::~MemoryFile() { (void)::close(file_); }

void MemoryFile::hold(std::string_view contents) {
  const bool cut = ::ftruncate(file_, static_cast<off_t>(contents.size())) == 0;
  const ssize_t written = ::pwrite(file_, contents.data(), contents.size(), 0);
  require(cut && written == static_cast<ssize_t>(contents.size()),
          "the file in memory is not written");
}

// The first byte says whether u2 is bf16.
void fuzz_npy(Input input) {
  static MemoryFile file;
  const bool bf16 = !input.empty() && (input[0] & 1) != 0;
  if (!input.empty()) input = input.subspan(1);
  file.hold(text_of(input));
  cli::Array array;
  const Status status = cli::read_npy(file.path(), bf16, array);
  if (!status.ok()) return require_reason(status);
  std::int64_t elements = 1;
  for (const std::int64_t extent : array.shape) elements *= extent;
  require(array.data.size() == static_cast<std::size_t>(elements) * size_of(array.dtype),
          "a shape and its bytes do not match");
  require(array.data.size() <= input.size(), "more bytes than the file has");
  const std::string target = fmt::format("/dev/shm/onepass-fuzz-{}.npy", ::getpid());
  static int written[8] = {};  // of each dtype
  if (written[static_cast<int>(array.dtype)]++ % 64 != 0)
    return;  // a file system takes longer than a parser
  require(cli::write_npy(target, array.dtype, array.shape, array.bytes()).ok(),
          "cannot be written");
  cli::Array again;
  require(cli::read_npy(target, array.dtype == DType::bf16, again).ok(),
          "what was written cannot be read");
  (void)::unlink(target.c_str());
  require(again.dtype == array.dtype && again.shape == array.shape &&
              again.data.size() == array.data.size() &&
              std::memcmp(again.data.data(), array.data.data(), array.data.size()) == 0,
          "another array after it was written and read");
}

namespace {

void require_round_trip(const cli::Case& c) {
  const std::string text = cli::to_string(c);
  cli::Case again;
  const Status status = cli::parse_case(text, again);
  require(status.ok(), fmt::format("'{}' cannot be read: {}", text, status.message()));
  require(cli::to_string(again) == text,
          fmt::format("'{}' reads as '{}'", text, cli::to_string(again)));
  // A NaN equals nothing, itself included.
  require(again == c || c != c, fmt::format("'{}' reads as another problem", text));
}

// What a workload's user meets: few rows, or all of them.
bool is_small(const cli::Case& c) {
  double elements = 1;
  for (const std::int64_t extent : c.shape) elements *= static_cast<double>(extent);
  return elements < 1e6 && (c.op != Op::attention || c.shape[0] < 1000);
}

}  // namespace

void fuzz_problem(Input input) {
  cli::Case c;
  const Status status = cli::parse_case(text_of(input), c);
  if (!status.ok()) return require_reason(status);
  require_round_trip(c);
  if (!is_small(c)) return;
  Problem problem;
  const Status described = cli::describe(c, problem);
  described.ok() ? (void)choose(problem, this_host(1)) : require_reason(described);
}

void fuzz_workload(Input input) {
  static MemoryFile file;
  file.hold(text_of(input));
  std::vector<cli::Case> cases;
  const Status status = cli::read_workload(file.path(), Op::softmax, cases);
  if (!status.ok()) return require_reason(status);
  require(!cases.empty(), "no problem, yet no refusal");
  std::string lines;
  for (const cli::Case& c : cases) lines += cli::to_string(c) + "\n";
  file.hold(lines);
  std::vector<cli::Case> again;
  require(cli::read_workload(file.path(), Op::softmax, again).ok(),
          "what was written cannot be read:\n" + lines);
  require(again.size() == cases.size(), "another number of problems");
}

void fuzz_tuning(Input input) {
  GpuTuning tuning;
  const Status status = GpuTuning::parse(text_of(input), tuning);
  if (!status.ok()) return require_reason(status);
  GpuTuning again;
  const std::string text = tuning.text();
  require(GpuTuning::parse(text, again).ok(), "what was written cannot be read:\n" + text);
  require(again == tuning, "another table after it was written and read:\n" + text);
  const Machine& machine = *find_machine("h200");
  (void)tuning.refuses(machine);
  if (const GpuTuning* own = built_in_tuning(machine))
    require(!own->points().empty(), "the library's table is empty");
  for (const Op op : {Op::softmax, Op::logsumexp, Op::softmax_backward}) {
    for (const std::int64_t cols : {1, 1000, 100000}) {
      const Problem problem{.op = op,
                            .rows = 64,
                            .cols = cols,
                            .in = DType::f32,
                            .out = DType::f32,
                            .aligned_rows = true};
      const auto launch = tuning.find(problem, machine);
      require(!launch || gpu_rows::fits(*launch, problem, machine), "a launch that does not fit");
    }
  }
}

void fuzz_results(Input input) {
  static MemoryFile file;
  file.hold(text_of(input));
  cli::Results results;
  const Status status = cli::load(file.path(), results);
  (void)cli::cpu_model(text_of(input));
  if (!status.ok()) return require_reason(status);
  const std::string text = cli::to_json(results);
  cli::Results again;
  const Status reread = cli::from_json(text, again);
  require(reread.ok(),
          fmt::format("what was written cannot be read: {}\n{}", reread.message(), text));
  require(again.environment == results.environment && again.rows.size() == results.rows.size(),
          "other results after they were written and read");
  require(cli::to_json(again) == text, "other numbers after they were written and read");
}

void fuzz_ncu(Input input) {
  std::vector<cli::Counters> launches;
  const Status status = cli::parse_ncu(text_of(input), launches);
  (void)cli::ncu_complaint(text_of(input), text_of(input).substr(input.size() / 2));
  if (!status.ok()) return require_reason(status);
  if (launches.empty()) return;
  (void)cli::what_moved(launches.front(), cli::joined(launches));
}

}  // namespace onepass::fuzz
