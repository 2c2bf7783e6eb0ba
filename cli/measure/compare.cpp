#include "cli/measure/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace onepass::cli {
namespace {

// A workload may hold a line twice: the second is a problem of its own.
using Key = std::pair<std::string, int>;

// The rows of one side, a problem's in the order of the files.
struct Side {
  std::vector<Key> order;                       // as the files have them
  std::map<Key, std::vector<const Row*>> rows;  // null: that file has none
};

bool was_measured(const Row& row) { return std::isfinite(row.median_us) && row.median_us > 0; }

bool is_wanted(const Row& row, const std::string& variant) {
  return was_measured(row) && (variant.empty() ? row.chosen : row.variant == variant);
}

Side side_of(const std::vector<Results>& files, const std::string& variant) {
  Side side;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::map<std::string, int> seen;
    for (const Row& row : files[i].rows) {
      if (!is_wanted(row, variant)) continue;
      const Key key{row.problem, seen[row.problem]++};
      auto [found, is_new] = side.rows.try_emplace(key, files.size(), nullptr);
      if (is_new) side.order.push_back(key);
      found->second[i] = &row;
    }
  }
  return side;
}

std::string machine_of(const Environment& e) {
  return e.sm > 0 ? e.device : fmt::format("{} with {} threads", e.cpu, e.threads);
}

Status one_machine(const std::vector<Results>& before, const std::vector<Results>& after) {
  const std::string first = machine_of(before.front().environment);
  for (const std::vector<Results>* side : {&before, &after}) {
    for (const Results& results : *side) {
      const std::string other = machine_of(results.environment);
      if (other == first) continue;
      return {Code::invalid_argument,
              fmt::format("results of different machines, {} and {}: --any-machine compares them",
                          first, other)};
    }
  }
  return {};
}

bool all_on_gpu(const std::vector<Results>& side) {
  return std::ranges::all_of(side, [](const Results& r) { return r.environment.sm > 0; });
}

// A copy has nothing to verify, and a peer may be beyond our tolerance.
bool is_wrong(const Row& row) { return !row.verified && row.role != "peer"; }

// The pairs of one problem, and what its rows say of themselves.
struct Pairs {
  Timings timings;
  Compared compared;
};

Pairs pairs_of(const std::vector<const Row*>& before, const std::vector<const Row*>& after) {
  Pairs out;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    if (before[i] == nullptr || after[i] == nullptr) continue;
    out.timings.before.push_back({before[i]->median_us, before[i]->rounds_us});
    out.timings.after.push_back({after[i]->median_us, after[i]->rounds_us});
    out.compared.op = before[i]->op;
    out.compared.problem = before[i]->problem;
    out.compared.before = before[i]->variant;
    out.compared.after = after[i]->variant;
    out.compared.before_wrong = out.compared.before_wrong || is_wrong(*before[i]);
    out.compared.after_wrong = out.compared.after_wrong || is_wrong(*after[i]);
  }
  return out;
}

// How far times of one program lie apart from process to process, as a standard deviation. The
// peers show it: they are not ours to change, and ran in the same processes. Not those so short
// that it is the clock they show. 0 without peers.
double process_noise(const std::vector<Results>& before, const std::vector<Results>& after,
                     double shortest_us) {
  double squares = 0;
  int count = 0;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    std::map<std::pair<std::string, std::string>, double> times;
    for (const Row& row : before[i].rows) {
      if (row.role == "peer" && was_measured(row))
        times[{row.problem, row.variant}] = row.median_us;
    }
    for (const Row& row : after[i].rows) {
      const auto found = times.find({row.problem, row.variant});
      if (found == times.end() || !was_measured(row) || row.median_us < shortest_us) continue;
      squares += std::pow(std::log(found->second / row.median_us), 2);
      ++count;
    }
  }
  return count == 0 ? 0 : std::sqrt(squares / count / 2);  // a ratio is of two processes
}

Status nothing_in_common(const std::string& variant) {
  return {Code::invalid_argument,
          variant.empty() ? "no problem has a chosen variant on both sides; --variant names another"
                          : fmt::format("variant: no problem has '{}' on both sides", variant)};
}

}  // namespace

Status compare(const std::vector<Results>& before, const std::vector<Results>& after,
               const Comparing& how, Comparison& out) {
  if (!how.any_machine) {
    if (Status status = one_machine(before, after); !status.ok()) return status;
  }
  out = {};
  out.noise = noise_of(all_on_gpu(before) && all_on_gpu(after));
  if (how.threshold_percent >= 0) out.noise.threshold = how.threshold_percent / 100;
  out.noise.process =
      std::max(out.noise.process, process_noise(before, after, out.noise.clock_until_us));
  out.pairs = std::min(before.size(), after.size());
  const Side left = side_of(before, how.variant);
  const Side right = side_of(after, how.variant);
  std::vector<Timings> timings;
  for (const Key& key : left.order) {
    const auto found = right.rows.find(key);
    Pairs pairs;
    if (found != right.rows.end()) pairs = pairs_of(left.rows.at(key), found->second);
    if (pairs.timings.before.empty()) {
      out.only_before.push_back(key.first);
      continue;
    }
    out.rows.push_back(std::move(pairs.compared));
    timings.push_back(std::move(pairs.timings));
  }
  for (const Key& key : right.order) {
    if (!left.rows.contains(key)) out.only_after.push_back(key.first);
  }
  if (out.rows.empty()) return nothing_in_common(how.variant);
  const std::vector<Judgement> judged = judge(timings, out.noise);
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    Compared& row = out.rows[i];
    row.judgement = judged[i];
    // The time of a wrong result means nothing.
    if (row.before_wrong || row.after_wrong) row.judgement.speed = Speed::unsure;
  }
  return {};
}

std::map<std::string, double> geometric_means(const std::vector<Compared>& rows) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const Compared& row : rows) {
    for (const std::string& group : {row.op, std::string("all")}) {
      sums[group].first += std::log(row.judgement.ratio);
      ++sums[group].second;
    }
  }
  std::map<std::string, double> means;
  for (const auto& [group, sum] : sums) means[group] = std::exp(sum.first / sum.second);
  return means;
}

int count_of(const std::vector<Compared>& rows, Speed speed) {
  return static_cast<int>(std::ranges::count_if(
      rows, [speed](const Compared& row) { return row.judgement.speed == speed; }));
}

}  // namespace onepass::cli
