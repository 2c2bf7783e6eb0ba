// onepass tune: measures every launch that could be the quickest, over a grid of shapes, on the
// user's own GPU, and writes the file that the library picks up.

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/files/files.hpp"
#include "cli/files/progress.hpp"
#include "cli/measure/measure.hpp"
#include "cli/ops/call.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/tuning_file.hpp"
#include "runtime/gpu.hpp"

namespace onepass::cli {
namespace {

struct Flags {
  std::string output;
  std::vector<std::string> families = {"map", "fold", "pair"};
  Protocol protocol{.iters = 12, .runs = 3, .warmup = 1, .seconds = 0.01};
};

// The op and the dtype that stand for a family and a size.
struct Kind {
  std::string_view family;
  Op op;
  DType dtype;
};

constexpr Kind kKinds[] = {
    {"map", Op::softmax, DType::f16},           {"map", Op::softmax, DType::f32},
    {"fold", Op::logsumexp, DType::f16},        {"fold", Op::logsumexp, DType::f32},
    {"pair", Op::softmax_backward, DType::f16}, {"pair", Op::softmax_backward, DType::f32},
};

// A grid over packs a row and rows: a few rows, and as many as make a call long.
std::vector<Case> grid_of(const Kind& kind) {
  constexpr std::int64_t longest = std::int64_t{1} << 17;
  constexpr std::int64_t most_bytes = std::int64_t{96} << 20;
  std::vector<Case> cases;
  for (std::int64_t packs = 2; packs <= longest; packs *= 2) {
    const std::int64_t cols = packs * pack_lanes(kind.dtype);
    const std::int64_t many = most_bytes / (packs * kPackBytes * traffic(kind.op).reads);
    for (std::int64_t rows = 1; rows <= many; rows *= 8) {
      Case c;
      c.op = kind.op;
      c.in = c.out = kind.dtype;
      c.shape = {rows * 8 > many ? many : rows, cols};
      c.device = Device::cuda;
      cases.push_back(c);
    }
  }
  return cases;
}

Status tune(const Flags& flags) {
  Machine machine{};
  if (Status status = this_gpu(machine); !status.ok()) return status;
  const std::string path = flags.output.empty() ? user_tuning_path() : flags.output;
  if (path.empty()) return {Code::invalid_argument, "output: no home folder; pass --output"};
  GpuTuning tuning(machine.gpu.sm, machine.gpu.processors);
  std::vector<std::pair<Kind, Case>> work;
  for (const Kind& kind : kKinds) {
    if (std::find(flags.families.begin(), flags.families.end(), kind.family) ==
        flags.families.end()) {
      continue;
    }
    for (Case& c : grid_of(kind)) work.emplace_back(kind, std::move(c));
  }
  Progress progress("tune", static_cast<std::int64_t>(work.size()));
  for (const auto& [kind, c] : work) {
    std::vector<Row> rows;
    const auto tell = [](const std::string&) {};
    if (Status status = measure(c, flags.protocol, {.variants = "launches"}, tell, rows);
        !status.ok()) {
      return {status.code(), fmt::format("{}: {}", to_string(c), status.message())};
    }
    const Row* best = nullptr;
    for (const Row& row : rows) {
      if (row.role == "peer" || !row.verified) continue;
      if (best == nullptr || row.median_us < best->median_us) best = &row;
    }
    if (best != nullptr) {
      Problem problem;
      if (Status status = describe(c, problem); !status.ok()) return status;
      tuning.add({family_of(c.op), static_cast<int>(size_of(c.in)), gpu_rows::packs(problem),
                  c.rows(), *gpu_rows::config_named(best->variant)});
    }
    progress.step(to_string(c));
  }
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (Status status = write_file_atomically(path, tuning.text()); !status.ok()) return status;
  fmt::print("{}: the quickest launches at {} points, for {}\n", path, tuning.points().size(),
             machine.name);
  return {};
}

}  // namespace

void add_tune(CommandLine& line) {
  Command command =
      line.command("tune", "time every launch on this GPU and write the fastest to a tuning table");
  command.footer(
      "Without --output, writes $ONEPASS_TUNING or, if that is not set, tuning.txt in the user's\n"
      "config folder, where the library looks for the table.\n"
      "Example: onepass tune --output my_gpu.txt && ONEPASS_TUNING=my_gpu.txt onepass bench");
  const auto flags = std::make_shared<Flags>();
  command.option("--output", flags->output, "write the table to this file");
  command
      .option("--families", flags->families,
              "map (softmax), fold (logsumexp, cross-entropy), pair (gradients)")
      .separated_by_commas()
      .one_of({"map", "fold", "pair"});
  command.option("--iters", flags->protocol.iters, "timed calls per run").positive();
  command.option("--runs", flags->protocol.runs, "runs per launch, which take turns").positive();
  command.run([flags] { return report(tune(*flags)); });
}

}  // namespace onepass::cli
