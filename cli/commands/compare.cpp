// onepass compare: whether speed was lost, problem by problem, from the results of two programs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/commands/commands.hpp"
#include "cli/files/files.hpp"
#include "cli/files/table.hpp"
#include "cli/measure/compare.hpp"
#include "cli/measure/json.hpp"

namespace onepass::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::string before, after;
  Comparing how;
  bool json = false;
};

// A file, or the *.json of a folder in the order of their names.
Status load_side(const std::string& path, std::vector<Results>& out) {
  std::vector<std::string> names;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    fs::directory_iterator entries(path, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      if (entries->path().extension() == ".json") names.push_back(entries->path().string());
    }
    if (error) return file_error(path, fmt::format("cannot read: {}", error.message()));
    if (names.empty()) return file_error(path, "holds no results, no *.json");
    std::ranges::sort(names);
  } else {
    names.push_back(path);
  }
  for (const std::string& name : names) {
    if (Status status = load(name, out.emplace_back()); !status.ok()) return status;
  }
  return {};
}

std::string files(std::size_t count) {
  return count == 1 ? "1 file" : fmt::format("{} files", count);
}

std::string problems(std::size_t count) {
  return count == 1 ? "1 problem" : fmt::format("{} problems", count);
}

std::string side_text(const std::vector<Results>& side) {
  const Environment& e = side.front().environment;
  return fmt::format("{} at commit {}{} on {}, {}", files(side.size()), e.commit,
                     e.dirty ? " with changes" : "", e.sm > 0 ? e.device : e.cpu,
                     e.date.substr(0, 10));
}

// What is odd about a row, if anything.
std::string remark_of(const Compared& row) {
  std::string text = row.before == row.after ? "" : fmt::format("{} -> {}", row.before, row.after);
  const auto add = [&text](std::string_view more) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", more);
  };
  if (row.before_wrong) add("wrong result before");
  if (row.after_wrong) add("wrong result after");
  if (std::isnan(row.judgement.low))
    add(fmt::format("{} observations", row.judgement.observations));
  return text;
}

// Ratios to a tenth of a percent, times as bench gives them.
std::string table_of(const Comparison& comparison) {
  Table table({{"problem"},
               {"before µs", Align::right},
               {"after µs", Align::right},
               {"ratio", Align::right},
               {"interval", Align::right},
               {"verdict"},
               {""}});
  for (const Compared& row : comparison.rows) {
    const Judgement& j = row.judgement;
    table.add({row.problem, fmt::format("{:.4g}", j.before_us), fmt::format("{:.4g}", j.after_us),
               fmt::format("{:.3f}", j.ratio),
               std::isnan(j.low) ? "none" : fmt::format("{:.3f} to {:.3f}", j.low, j.high),
               std::string(name(j.speed)), remark_of(row)});
  }
  return table.text();
}

std::string observed(const Comparison& comparison) {
  if (comparison.pairs >= kFewestPairs) {
    return fmt::format("{} pairs of processes", comparison.pairs);
  }
  return fmt::format("the rounds of {}, and {:.2g} % from process to process",
                     comparison.pairs == 1 ? "1 pair of processes" : "2 pairs of processes",
                     comparison.noise.process * 100);
}

std::string counts_text(const std::vector<Compared>& rows) {
  std::string text;
  for (const Speed speed : {Speed::faster, Speed::slower, Speed::same, Speed::unsure}) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count_of(rows, speed), name(speed));
  }
  return text;
}

std::string unmatched_text(std::string_view side, const std::vector<std::string>& list) {
  if (list.empty()) return {};
  std::string text = fmt::format("Only {}, {}:\n", side, problems(list.size()));
  for (const std::string& problem : list) text += fmt::format("  {}\n", problem);
  return text;
}

void print(const std::vector<Results>& before, const std::vector<Results>& after,
           const Comparison& comparison) {
  fmt::print("Before: {}\nAfter:  {}\n", side_text(before), side_text(after));
  if (before.size() != after.size()) {
    fmt::print("Of the longer side only the first {} compared.\n",
               comparison.pairs == 1 ? "file is" : files(comparison.pairs) + " are");
  }
  fmt::print("Threshold {:g} %, intervals of 99 % from {}.\n\n{}\n",
             comparison.noise.threshold * 100, observed(comparison), table_of(comparison));
  Table means({{"op"}, {"problems", Align::right}, {"geometric mean of ratios", Align::right}});
  for (const auto& [op, mean] : geometric_means(comparison.rows)) {
    const auto count = std::ranges::count_if(
        comparison.rows, [&op = op](const Compared& row) { return op == "all" || row.op == op; });
    means.add({op, fmt::format("{}", count), fmt::format("{:.4f}", mean)});
  }
  fmt::print("{}{}{}{}\n", means.text(), unmatched_text("before", comparison.only_before),
             unmatched_text("after", comparison.only_after), counts_text(comparison.rows));
}

Json json_of(const Compared& row) {
  const Judgement& j = row.judgement;
  const auto ratio = [](double value) { return std::round(value * 1e5) / 1e5; };
  return {{"op", row.op},
          {"problem", row.problem},
          {"before", row.before},
          {"after", row.after},
          {"before_us", rounded(j.before_us)},
          {"after_us", rounded(j.after_us)},
          {"ratio", ratio(j.ratio)},
          {"low", ratio(j.low)},
          {"high", ratio(j.high)},
          {"observations", j.observations},
          {"verdict", name(j.speed)},
          {"remark", remark_of(row)}};
}

std::string as_json(const std::vector<Results>& before, const std::vector<Results>& after,
                    const Comparison& comparison) {
  Json counts = Json::object();
  for (const Speed speed : {Speed::faster, Speed::slower, Speed::same, Speed::unsure}) {
    counts[std::string(name(speed))] = count_of(comparison.rows, speed);
  }
  std::vector<Json> rows;
  for (const Compared& row : comparison.rows) rows.push_back(json_of(row));
  return results_text({{"before", json_of(before.front().environment)},
                       {"after", json_of(after.front().environment)},
                       {"pairs", comparison.pairs},
                       {"threshold_percent", comparison.noise.threshold * 100},
                       {"geometric_means", geometric_means(comparison.rows)},
                       {"counts", counts},
                       {"only_before", comparison.only_before},
                       {"only_after", comparison.only_after}},
                      rows);
}

int run(const Flags& flags) {
  std::vector<Results> before, after;
  Comparison comparison;
  Status status = load_side(flags.before, before);
  if (status.ok()) status = load_side(flags.after, after);
  if (status.ok()) status = compare(before, after, flags.how, comparison);
  if (!status.ok()) return report(status);
  if (flags.json) {
    fmt::print("{}", as_json(before, after, comparison));
  } else {
    print(before, after, comparison);
  }
  return count_of(comparison.rows, Speed::slower) > 0 ? kFailed : kDone;
}

}  // namespace

void add_compare(CommandLine& line) {
  Command command =
      line.command("compare", "tell from two results of bench what became faster or slower");
  command.footer(
      "A folder holds repeats of one workload: a *.json per process. Files are paired in the "
      "order\n"
      "of their names. With three pairs or more, compares processes, which says most; with fewer,\n"
      "their rounds. A ratio is before / after: above 1 is faster. FASTER, SLOWER: the whole\n"
      "interval is past the threshold; SAME: all of it is within; UNSURE: neither. Exits with 1 "
      "if\n"
      "anything is SLOWER. scripts/ab.sh measures two programs in turns.\n"
      "Examples: onepass compare before.json after.json\n"
      "          onepass compare ab/before ab/after --threshold 2");
  const auto flags = std::make_shared<Flags>();
  command.option("before", flags->before, "a results file or a folder of them").required();
  command.option("after", flags->after, "a results file or a folder of them").required();
  command.option("--variant", flags->how.variant,
                 "compare this variant or peer; the chosen one if left out");
  command
      .option("--threshold", flags->how.threshold_percent,
              "take this many percent as no change; by default 1 on a GPU, 5 on a CPU")
      .within(0.0, 1000.0);
  command.flag("--any-machine", flags->how.any_machine,
               "also compare results of different machines");
  command.flag("--json", flags->json, "print JSON instead of tables");
  command.run([flags] { return run(*flags); });
}

}  // namespace onepass::cli
