#include "cli/profile/profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "cli/files/table.hpp"
#include "cli/measure/json.hpp"
#include "cli/profile/process.hpp"
#include "dispatch/variant.hpp"

namespace onepass::cli {
namespace {

constexpr std::string_view kNotPermitted =
    "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM). One of these helps:\n"
    "  run this command as root, or with sudo;\n"
    "  let every user read them: put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in a\n"
    "  file in /etc/modprobe.d and load the driver again (or restart the machine);\n"
    "  in a container: start it with --cap-add=SYS_ADMIN.";

bool contains(const Ended& ended, std::string_view text) {
  return ended.out.find(text) != std::string::npos || ended.err.find(text) != std::string::npos;
}

// The last lines of what was said, for an error that nothing is known about.
std::string tail_of(std::string_view text) {
  constexpr std::size_t kMost = 600;
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.size() - std::min(text.size(), kMost)));
}

// How the program ended, and what it or ncu said about it.
Status failure(const Ended& ended, std::string_view what) {
  std::string said = ncu_complaint(ended.out, ended.err);
  if (said.empty()) said = tail_of(ended.err.empty() ? ended.out : ended.err);
  return {Code::unsupported, said.empty() ? std::string(what) : fmt::format("{}:\n{}", what, said)};
}

Status check(const Ended& ended, double seconds, bool& hopeless) {
  if (contains(ended, "ERR_NVGPUCTRPERM")) {
    hopeless = true;
    return {Code::unsupported, std::string(kNotPermitted)};
  }
  if (ended.timed_out) {
    return failure(ended, fmt::format("ncu did not end within {:g} s and was killed; --timeout "
                                      "gives it longer",
                                      seconds));
  }
  if (ended.signal != 0) {
    return failure(ended, fmt::format("ncu was ended by signal {} ({})", ended.signal,
                                      ::strsignal(ended.signal)));
  }
  if (ended.exit != 0) return failure(ended, fmt::format("ncu ended with code {}", ended.exit));
  return {};
}

std::string_view role_of(Op op, std::string_view variant) {
  const Variant* ours = find_variant(op, variant);
  return name(ours == nullptr ? Role::peer : ours->role);
}

std::string cell(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

}  // namespace

Status find_ncu(const std::string& name, std::string& path) {
  path = find_program(name);
  // Where the toolkit puts it, for those who did not put that on PATH.
  if (path.empty() && name == Profiler{}.ncu) path = find_program("/usr/local/cuda/bin/ncu");
  if (!path.empty()) return {};
  return {Code::unsupported,
          fmt::format("'{}' was not found. Nsight Compute comes with the CUDA toolkit, as the "
                      "package nsight-compute; give its ncu by --ncu PATH, or put it on PATH",
                      name)};
}

Status profile_one(const Profiler& profiler, const Case& c, const std::string& variant,
                   Counters& counters, bool& hopeless) {
  hopeless = false;
  const std::vector<std::string> child = {profiler.program, "profile",   std::string(name(c.op)),
                                          "--child",        "--problem", to_string(c),
                                          "--variants",     variant};
  Ended ended;
  Status status = run_process(ncu_command(profiler.ncu, child), profiler.seconds, ended);
  hopeless = !status.ok();  // it could not even be started
  if (status.ok()) status = check(ended, profiler.seconds, hopeless);
  std::vector<Counters> launches;
  if (status.ok()) status = parse_ncu(ended.out, launches);
  if (!status.ok()) return status;
  if (launches.empty()) return failure(ended, "ncu profiled no kernel");
  counters = joined(launches);
  return {};
}

Status profile(const Profiler& profiler, const Case& c, const std::vector<std::string>& variants,
               const std::function<void(const std::string&)>& tell, std::vector<ProfileRow>& rows) {
  std::vector<std::string> failures;
  std::optional<Counters> before;  // of the step before
  for (const std::string& variant : variants) {
    ProfileRow row{.op = std::string(name(c.op)),
                   .variant = variant,
                   .role = std::string(role_of(c.op, variant)),
                   .problem = to_string(c),
                   .dtype = std::string(name(c.in)),
                   .shape = c.shape,
                   .counters = {},
                   .moved = {}};
    bool hopeless = false;
    const Status status = profile_one(profiler, c, variant, row.counters, hopeless);
    if (hopeless) return status;
    tell(fmt::format("{}, {}", row.problem, variant));
    if (!status.ok()) {
      failures.push_back(fmt::format("{}, {}: {}", row.problem, variant, status.message()));
      continue;
    }
    if (row.role != name(Role::peer)) {
      if (before) row.moved = what_moved(*before, row.counters);
      before = row.counters;
    }
    rows.push_back(std::move(row));
  }
  if (failures.empty()) return {};
  return {Code::unsupported, fmt::format("{}", fmt::join(failures, "\n"))};
}

std::string table_of(const std::vector<ProfileRow>& rows) {
  Table table({{"problem"},
               {"variant"},
               {"µs", Align::right},
               {"DRAM %", Align::right},
               {"L2 %", Align::right},
               {"L1/TEX %", Align::right},
               {"SM %", Align::right},
               {"occupancy %", Align::right},
               {"registers", Align::right},
               {"read MB", Align::right},
               {"written MB", Align::right},
               {"moved from the step before"}});
  std::string_view last;
  for (const ProfileRow& row : rows) {
    const Counters& c = row.counters;
    table.add({row.problem == last ? "" : row.problem, row.variant, cell(c.duration_us, 1),
               cell(c.dram_percent, 0), cell(c.l2_percent, 0), cell(c.l1_percent, 0),
               cell(c.sm_percent, 0), cell(c.occupancy_percent, 0), cell(c.registers, 0),
               cell(c.dram_read_bytes / 1e6, 1), cell(c.dram_write_bytes / 1e6, 1), row.moved});
    last = row.problem;
  }
  return table.text();
}

std::string to_json(const Profile& profile) {
  std::vector<Json> rows;
  for (const ProfileRow& row : profile.rows) {
    const Counters& c = row.counters;
    Json& out = rows.emplace_back(Json::object());
    out["op"] = row.op;
    out["variant"] = row.variant;
    out["role"] = row.role;
    out["problem"] = row.problem;
    out["dtype"] = row.dtype;
    out["shape"] = row.shape;
    out["launches"] = c.launches;
    out["duration_us"] = rounded(c.duration_us);
    out["dram_percent"] = rounded(c.dram_percent);
    out["l2_percent"] = rounded(c.l2_percent);
    out["l1_percent"] = rounded(c.l1_percent);
    out["sm_percent"] = rounded(c.sm_percent);
    out["occupancy_percent"] = rounded(c.occupancy_percent);
    out["registers"] = rounded(c.registers);
    out["dram_read_bytes"] = rounded(c.dram_read_bytes);
    out["dram_write_bytes"] = rounded(c.dram_write_bytes);
    out["moved"] = row.moved;
  }
  return results_text({{"schema", kResultsSchema}, {"environment", json_of(profile.environment)}},
                      rows);
}

}  // namespace onepass::cli
