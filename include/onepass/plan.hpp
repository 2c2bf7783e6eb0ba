// Plan: the dispatcher's decision, as plain data to print and compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

struct Plan {
  std::string_view variant = {};  // a name that `onepass list` prints; lives as long as the program
  int threads = 1;                // on a CPU, threads in all; on a GPU, threads per block
  std::int64_t blocks = 0;        // on a GPU, blocks per launch; on a CPU, 0
  int split = 1;  // threads or blocks that share a row; in attention, split-KV partitions
  std::size_t scratch_bytes = 0;  // on a CPU, scratch per thread; on a GPU, the workspace
  std::string details = {};       // further decisions: name=value pairs and words

  bool operator==(const Plan&) const = default;
};

std::string to_string(const Plan& plan);

// A plan, the reasons for it and the bytes it moves; see Context::explaining.
struct Explanation {
  Plan plan;
  std::vector<std::string> reasons;  // one sentence per decision, for people
  double least_bytes = 0;    // each input element read once, each output element written once
  double planned_bytes = 0;  // what the plan moves, repeated reads included
};

}  // namespace onepass
