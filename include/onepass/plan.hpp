// Plan: what the dispatcher decided. Plain data, printable and comparable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

struct Plan {
  std::string_view variant;       // a name from the registry, alive as long as the program
  int threads = 1;                // workers in all; on a GPU, threads a block
  int split = 1;                  // pieces a row is cut into; 1: a row has one worker
  bool resident = false;          // the row stays in cache or on chip: x is read from memory once
  bool streaming = false;         // stores go past the caches
  std::size_t scratch_bytes = 0;  // a worker; on a GPU, of the workspace
  std::int64_t blocks = 0;        // on a GPU: blocks a launch; 0 on a CPU
  std::size_t shared_bytes = 0;   // on a GPU: shared memory a block
  int row_threads = 0;            // on a GPU: threads of a block that share a row; 0: all
  int packs = 0;                  // on a GPU: 16-byte packs of a row in a thread's registers
  bool looped = false;            // on a GPU: a row goes on past those
  int chunk = 0;                  // on a GPU: packs that a block has of a row
  std::int64_t keys = 0;          // of attention: keys a part where they are cut; 0: not
  int cluster = 1;                // of attention: blocks that share the keys of a part
  bool whole = false;             // on a GPU: kernels for rows of whole packs
  bool general = false;           // on a GPU: options or dtypes that no kernel is compiled for

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
