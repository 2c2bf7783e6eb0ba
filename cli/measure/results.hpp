// Results: what a measurement leaves behind. Every number in a document of this project comes from
// a file of this form, written by a command that the document names.
//
//     {"schema": 1, "environment": {…}, "limits": {"copy_gbps": …}, "rows": [{…}, …]}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/status.hpp"

namespace onepass::cli {

inline constexpr int kResultsSchema = 1;

// Where, with what and when. What does not apply to the device is empty or 0.
struct Environment {
  std::string device;  // "cpu", or the name of the GPU
  std::string cpu;     // its model
  std::string isa;     // the instruction set that the SIMD code ran with
  int threads = 0;
  int sm = 0;  // the GPU's compute capability, 90 for 9.0
  std::string driver;
  std::string cuda;
  std::string commit;
  bool dirty = false;  // the tree had changes that are not in the commit
  std::string date;    // UTC, ISO 8601

  bool operator==(const Environment&) const = default;
};

// One variant on one problem. A measurement that was not made is NaN here and null in the file.
struct Row {
  std::string op;
  std::string variant;
  std::string role;
  bool chosen = false;  // the dispatcher's own choice for this problem
  std::string problem;
  std::string dtype;
  std::vector<std::int64_t> shape;
  int threads = 0;
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
  std::int64_t bytes = 0;
  double gbps = 0;
  double percent_of_copy = 0;
  double tflops = 0;  // 0, and not in the file: an op that memory bounds
  bool verified = false;
  std::vector<double> rounds_us;  // the median of each run, in the order they were taken
};

struct Results {
  Environment environment;
  std::map<std::string, double> limits;  // what the machine can do at most: copy_gbps, …
  std::vector<Row> rows;
};

// Text with a row a line and measurements of four significant digits; see cli/measure/json.hpp.
std::string to_json(const Results& results);

// Errors name the field: "rows[3].median_us is missing". Fields that are not known are skipped.
Status from_json(std::string_view text, Results& out);

Status save(const std::string& path, const Results& results);
Status load(const std::string& path, Results& out);

// This machine, as a CPU, now; the GPU's fields are left empty.
Environment detect_environment(std::string isa, int threads);

// The model in the text of Linux's /proc/cpuinfo, or "unknown". Arm has no name there, only the
// numbers of the maker and the part.
std::string cpu_model(std::string_view cpuinfo);

}  // namespace onepass::cli
