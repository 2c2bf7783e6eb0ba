// Another program, run to its end: no shell, both streams read as they come, a time limit.
#pragma once

#include <string>
#include <vector>

#include "onepass/status.hpp"

namespace onepass::cli {

struct Ended {
  int exit = 0;    // its exit code
  int signal = 0;  // the signal that ended it, or 0
  bool timed_out = false;
  std::string out, err;
};

// The words begin with the program's path. Its stdin is empty; numbers it prints are those of the
// C locale. Past the time limit the program and what it started are killed. An error only when the
// program could not be started.
Status run_process(const std::vector<std::string>& words, double seconds, Ended& ended);

// A name without a slash is looked up on PATH. Empty when there is no such program.
std::string find_program(const std::string& name);

// The path of the program that is running.
std::string own_path();

}  // namespace onepass::cli
