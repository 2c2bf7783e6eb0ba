// onepass profile: Nsight Compute on each variant, one table.

#include <fmt/format.h>

#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/files/files.hpp"
#include "cli/files/progress.hpp"
#include "cli/profile/once.hpp"
#include "cli/profile/process.hpp"
#include "cli/profile/profile.hpp"

namespace onepass::cli {
namespace {

Status collect(const ProfileRequest& request, std::vector<Case>& cases) {
  Case c;
  if (!request.op.empty()) {
    if (Status status = parse_op(request.op, c.op); !status.ok()) return status;
  }
  std::vector<std::string> texts;
  if (!request.problem.empty()) texts.push_back(request.problem);
  for (const std::string& dtype : request.dtypes) {
    if (request.problem.empty()) {
      texts.push_back(fmt::format("{}x{} {}", request.rows, request.cols, dtype));
    }
  }
  for (const std::string& text : texts) {
    if (Status status = parse_case(text, c); !status.ok()) return status;
    cases.push_back(c);
    cases.back().device = Device::cuda;
  }
  return {};
}

}  // namespace

Status profile(const ProfileRequest& request, const ProfileTarget& target) {
  std::vector<Case> cases;
  if (Status status = collect(request, cases); !status.ok()) return status;
  if (request.child) return target.run(cases.front(), request.variants);

  std::vector<std::vector<std::string>> variants(cases.size());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Status status = target.variants(cases[i], request.variants, variants[i]);
    if (!status.ok()) return status;
    total += static_cast<std::int64_t>(variants[i].size());
  }
  if (total == 0) return {Code::unsupported, "no variant on the GPU runs this problem"};
  Profiler profiler = request.profiler;
  if (profiler.program.empty()) profiler.program = own_path();
  if (Status status = find_ncu(request.profiler.ncu, profiler.ncu); !status.ok()) return status;

  Profile out;
  Status first;  // what went wrong; the other cases are still worth their table
  {
    Progress progress("profile", total);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const auto tell = [&](const std::string& what) { progress.step(what); };
      const Status status = profile(profiler, cases[i], variants[i], tell, out.rows);
      if (first.ok() && !status.ok()) first = status;
    }
  }
  if (out.rows.empty()) return first;
  fmt::print("{}", table_of(out.rows));
  if (!request.json.empty()) {
    out.environment = target.environment();
    Status status = write_file_atomically(request.json, to_json(out));
    if (!status.ok()) return status;
  }
  return first;
}

void add_profile(CommandLine& line) {
  Command command = line.command(
      "profile", "read the GPU's counters for each variant, and name the one that changed most");
  command.footer(
      "Needs Nsight Compute (ncu) and permission to read the GPU's counters. Runs each variant in "
      "a\n"
      "process of its own; ncu flushes the caches before each launch.\n"
      "Example: onepass profile softmax --rows 4096 --cols 4096 --dtype f32,f16 --json out.json");
  const auto flags = std::make_shared<ProfileRequest>();
  command.option("op", flags->op, "the op to profile; softmax if left out; see onepass list");
  command.option("--rows", flags->rows, "rows").positive();
  command.option("--cols", flags->cols, "columns").positive();
  command.option("--dtype", flags->dtypes, "f32, f16, bf16, f64, or in:out").separated_by_commas();
  command.option("--problem", flags->problem, "profile this problem line; see list --options");
  command.option("--variants", flags->variants, "profile all, or names: a,b");
  command.option("--ncu", flags->profiler.ncu, "run this ncu; the one on PATH if left out");
  command
      .option("--timeout", flags->profiler.seconds, "give each variant at most this many seconds")
      .positive();
  command.option("--json", flags->json, "write the counters to this file");
  command.flag("--child", flags->child, "what ncu is run on").group("");
  command.run([flags] {
    const ProfileTarget target = {variants_to_profile, run_profiled, gpu_environment};
    return report(profile(*flags, target));
  });
}

}  // namespace onepass::cli
