// Profiling: Nsight Compute's counters of each variant, step by step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/measure/results.hpp"
#include "cli/problem/case.hpp"
#include "cli/profile/ncu.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

// One variant on one problem.
struct ProfileRow {
  std::string op;
  std::string variant;
  std::string role;
  std::string problem;
  std::string dtype;
  std::vector<std::int64_t> shape;
  Counters counters;
  std::string moved;  // from the variant before; of the first, and of peers, empty
};

struct Profile {
  Environment environment;
  std::vector<ProfileRow> rows;
};

struct Profiler {
  std::string ncu = "ncu";  // a path, or a name to be found
  std::string program;      // onepass itself
  double seconds = 120;     // for one variant
};

// Where ncu is. Without it, says where it comes from.
Status find_ncu(const std::string& name, std::string& path);

// Runs ncu on one variant; profiler.ncu is a path. An error that another variant would meet just
// as well sets `hopeless`.
Status profile_one(const Profiler& profiler, const Case& c, const std::string& variant,
                   Counters& counters, bool& hopeless);

// All variants of a case, in the order given. Those that fail are left out, and the error names
// them; the rows of the others are there all the same.
Status profile(const Profiler& profiler, const Case& c, const std::vector<std::string>& variants,
               const std::function<void(const std::string&)>& tell, std::vector<ProfileRow>& rows);

std::string table_of(const std::vector<ProfileRow>& rows);

// As the results of `bench`, with counters in place of times.
std::string to_json(const Profile& profile);

// What the machine has to do for it; cli/profile/once.hpp has the real ones.
struct ProfileTarget {
  std::function<Status(const Case&, const std::string&, std::vector<std::string>&)> variants;
  std::function<Status(const Case&, const std::string&)> run;
  std::function<Environment()> environment;
};

// The flags of the command.
struct ProfileRequest {
  std::string op;
  std::int64_t rows = 4096;
  std::int64_t cols = 4096;
  std::vector<std::string> dtypes = {"f32"};
  std::string problem;
  std::string variants = "all";
  std::string json;
  Profiler profiler;
  bool child = false;  // this is the program that ncu looks at
};

// The command: prints the table, writes the file.
Status profile(const ProfileRequest& request, const ProfileTarget& target);

}  // namespace onepass::cli
