// Comparing: results before and after a change, matched problem by problem and judged.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/measure/judge.hpp"
#include "cli/measure/results.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

struct Comparing {
  std::string variant;            // empty: the chosen one, whatever its name on either side
  double threshold_percent = -1;  // below 0: the device's own, of noise_of
  bool any_machine = false;
};

struct Compared {
  std::string op;
  std::string problem;
  std::string before, after;  // the variants' names
  bool before_wrong = false, after_wrong = false;
  Judgement judgement;
};

struct Comparison {
  Noise noise{};
  std::size_t pairs = 0;  // of files
  std::vector<Compared> rows;
  std::vector<std::string> only_before, only_after;  // problems
};

// The i-th results before and the i-th after are a pair; those beyond the shorter
// side are left out.
Status compare(const std::vector<Results>& before, const std::vector<Results>& after,
               const Comparing& how, Comparison& out);

// Of the ratios, of each op; of all of them under "all".
std::map<std::string, double> geometric_means(const std::vector<Compared>& rows);

int count_of(const std::vector<Compared>& rows, Speed speed);

}  // namespace onepass::cli
