#include "cli/measure/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace onepass::cli {
namespace {

bool is_peer(const Row& row) { return row.role == "peer" && row.variant != "copy"; }

struct Standing {
  int results = 0;  // of our variants
  int wrong = 0;
  std::vector<double>
      ratios;  // of each problem: the quickest peer's time over the chosen variant's
  std::set<std::string> quickest;  // the peers that these are of
};

Standing standing_of(std::span<const Row> rows, const std::string& op) {
  Standing standing;
  for (const Row& row : rows) {
    if (row.op != op || row.role == "peer") continue;
    standing.results += 1;
    standing.wrong += row.verified ? 0 : 1;
    if (!row.chosen) continue;
    const Row* best = nullptr;
    for (const Row& other : rows) {
      if (other.problem != row.problem || !is_peer(other)) continue;
      if (best == nullptr || other.median_us < best->median_us) best = &other;
    }
    if (best == nullptr) continue;
    standing.ratios.push_back(best->median_us / row.median_us);
    standing.quickest.insert(best->variant);
  }
  return standing;
}

std::string plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string sentence(const std::string& op, const Standing& standing) {
  std::string text = op + ": ";
  if (!standing.ratios.empty()) {
    double logs = 0;
    for (const double ratio : standing.ratios) logs += std::log(ratio);
    const std::size_t count = standing.ratios.size();
    text += fmt::format(
        "{:.2f}x {} in geometric mean over {}, least {:.2f}x; ",
        std::exp(logs / static_cast<double>(count)),
        standing.quickest.size() == 1 ? *standing.quickest.begin() : "the quickest peer",
        plural(count, "problem"),
        *std::min_element(standing.ratios.begin(), standing.ratios.end()));
  }
  if (standing.wrong > 0)
    return text + fmt::format("{} of {} results WRONG.\n", standing.wrong, standing.results);
  return text +
         fmt::format("{} verified.\n", standing.results == 1
                                           ? "the result"
                                           : fmt::format("all {} results", standing.results));
}

}  // namespace

std::string summary(std::span<const Row> rows) {
  std::vector<std::string> ops;  // in the order of the table
  for (const Row& row : rows) {
    if (std::find(ops.begin(), ops.end(), row.op) == ops.end()) ops.push_back(row.op);
  }
  std::string text;
  for (const std::string& op : ops) {
    const Standing standing = standing_of(rows, op);
    if (standing.results > 0) text += sentence(op, standing);
  }
  return text;
}

}  // namespace onepass::cli
