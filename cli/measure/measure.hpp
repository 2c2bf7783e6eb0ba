// Timing: one case, all candidates, interleaved, on cold buffers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/measure/results.hpp"
#include "cli/problem/case.hpp"

namespace onepass::cli {

struct Protocol {
  int iters = 20;        // timed calls of a candidate in one run
  int runs = 5;          // candidates take turns: one run each, this often
  int warmup = 3;        // untimed calls before the first run
  double seconds = 0.5;  // a run ends after this long, whatever iters says
  double rest_ms = 0;    // before each run
};

std::vector<std::string> split_names(const std::string& text);

// "all": every variant and peer; "auto": the dispatcher's choice and the peers; "launches": of what
// ships on a GPU, every launch that a tuning may choose, and a copy; or names, a,b,c.
struct Selection {
  std::string variants = "all";
};

// Rows in the order of the registry, the peers last. A candidate that cannot run the case is left
// out; a name that does not exist, or that was asked for and cannot run, is an error.
Status measure(const Case& c, const Protocol& protocol, const Selection& selection,
               const std::function<void(const std::string&)>& tell, std::vector<Row>& rows);

}  // namespace onepass::cli
