// Plan: what the dispatcher decided. Plain data, printable and comparable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

struct Plan {
  std::string_view variant = {};  // a name of `onepass list`, alive as long as the program
  int threads = 1;                // workers in all; on a GPU, threads per block
  std::int64_t blocks = 0;        // on a GPU: blocks per launch; 0 on a CPU
  int split = 1;                  // workers, or blocks, that share a row; parts of attention's keys
  std::size_t scratch_bytes = 0;  // per worker; on a GPU, of the workspace
  std::string details = {};       // what else was decided: name=value, and words

  bool operator==(const Plan&) const = default;
};

std::string to_string(const Plan& plan);

// A plan, why it is so, and what it moves; see Context::explaining.
struct Explanation {
  Plan plan;
  std::vector<std::string> reasons;  // one sentence a decision, for people
  double least_bytes = 0;    // each input element read once, each output element written once
  double planned_bytes = 0;  // what the plan moves, re-reads included
};

}  // namespace onepass
