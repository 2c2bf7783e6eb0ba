// onepass verify: every variant against the float64 oracle.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"
#include "cli/files/files.hpp"
#include "cli/files/progress.hpp"
#include "cli/files/table.hpp"
#include "cli/measure/verify.hpp"

namespace onepass::cli {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string workload;
  std::string variant;
  std::string device;
  std::string json;
  bool all_fills = false;
};

Status collect(const Flags& flags, std::vector<Case>& cases) {
  Case c;
  std::vector<std::string> words = flags.words;
  bool all_ops = true;
  if (const Op* op = words.empty() ? nullptr : op_named(words[0])) {
    c.op = *op;
    words.erase(words.begin());
    all_ops = false;
  }
  if (!flags.workload.empty()) {
    if (!words.empty()) {
      return {Code::invalid_argument, "verify: give a problem or --workload, not both"};
    }
    return read_workload(flags.workload, c.op, cases);
  }
  if (!words.empty()) {
    std::string text;
    for (const std::string& word : words) text += word + " ";
    if (Status status = parse_case(text, c); !status.ok()) return status;
    cases.push_back(c);
    return {};
  }
  for (const Op op : kAllOps) {
    if (!all_ops && op != c.op) continue;
    for (const std::string_view text : driver_of(op).quick) {
      Case each{.op = op};
      if (Status status = parse_case(text, each); !status.ok()) return status;
      // Results that there is one of a row cannot lie over x.
      if (traffic(op).writes == 0) each.in_place = false;
      cases.push_back(each);
    }
  }
  return {};
}

// Of a case that did not pass.
Exit exit_of(const Verdict& verdict) {
  switch (verdict.code) {
    case Code::invalid_argument: return kUsage;
    case Code::unsupported:
    case Code::out_of_memory: return kCannot;
    default: return kFailed;
  }
}

struct Tally {
  int passed = 0;
  int failed = 0;
  double worst = 0;
};

// What came of all cases.
struct Outcome {
  std::map<std::pair<std::string, std::string>, Tally> tallies;  // by op and variant
  std::vector<std::string> failures;                             // problem and reason
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  int exit = kDone;

  void add(const Case& c, const Verdict& verdict) {
    const bool passed = verdict.kind == Verdict::Kind::passed;
    Tally& tally = tallies[{std::string(name(c.op)), passed ? verdict.variant : c.variant}];
    (passed ? tally.passed : tally.failed) += 1;
    tally.worst = std::max(tally.worst, verdict.worst);
    if (!passed) failures.push_back(to_string(c) + "\n    " + verdict.message);
    // A result that is wrong counts before a problem that is, and that before what is missing here.
    if (!passed) exit = exit == kDone ? exit_of(verdict) : std::min<int>(exit, exit_of(verdict));
    rows.push_back({{"problem", to_string(c)},
                    {"variant", verdict.variant},
                    {"passed", passed},
                    {"worst", verdict.worst},
                    {"message", verdict.message}});
  }
};

// Every case that those given leave open. One that no variant can run stands for itself, so that it
// is heard about.
std::vector<Case> all_cases(const std::vector<Case>& given, bool all_fills) {
  std::vector<Case> cases;
  for (const Case& c : given) {
    const std::vector<Case> expanded = expand(c, all_fills);
    cases.insert(cases.end(), expanded.begin(), expanded.end());
    if (expanded.empty()) cases.push_back(c);
  }
  return cases;
}

void print(const Outcome& outcome) {
  Table table({{"op"},
               {"variant"},
               {"passed", Align::right},
               {"failed", Align::right},
               {"largest error / tolerance", Align::right}});
  int passed = 0;
  for (const auto& [key, tally] : outcome.tallies) {
    table.add({key.first, key.second, fmt::format("{}", tally.passed),
               fmt::format("{}", tally.failed), fmt::format("{:.2f}", tally.worst)});
    passed += tally.passed;
  }
  fmt::print("{}", table.text());
  for (const std::string& failure : outcome.failures) {
    fmt::print(stderr, "FAILED onepass verify {}\n", failure);
  }
  fmt::print("verify: {} passed, {} failed\n", passed, outcome.failures.size());
}

int run(const Flags& flags) {
  std::vector<Case> given;
  if (Status status = collect(flags, given); !status.ok()) return report(status);
  const bool chosen_alone = flags.variant == "auto";
  if (!flags.variant.empty() && !chosen_alone) {
    for (Case& c : given) c.variant = flags.variant;
  }
  if (flags.device == "cuda") {  // a CPU's instruction sets and threads say nothing there
    std::erase_if(given,
                  [](const Case& c) { return !c.isa.empty() || c.variant.starts_with("cpu_"); });
    for (Case& c : given) {
      c.device = Device::cuda;
      c.threads = 0;
    }
  }
  const bool quick = flags.words.size() < 2 && flags.workload.empty();
  const std::vector<Case> cases = chosen_alone ? given : all_cases(given, flags.all_fills || quick);
  Outcome outcome;
  {
    Progress progress("verify", static_cast<std::int64_t>(cases.size()));
    Verifier verifier;
    for (const Case& c : cases) {
      outcome.add(c, verifier.verify(c));
      progress.step(to_string(c));
    }
  }
  print(outcome);
  if (!flags.json.empty()) {
    const Status status = write_file_atomically(flags.json, outcome.rows.dump(1) + "\n");
    if (!status.ok()) return report(status);
  }
  return outcome.exit;
}

}  // namespace

void add_verify(CommandLine& line) {
  Command command = line.command(
      "verify", "compare variants with a float64 oracle, their outputs poisoned beforehand");
  command.footer(
      "Without a problem, verifies a quick set for every op, or for the one named. Tries each\n"
      "problem with all variants and instruction sets that it does not name and that can run it.\n"
      "Examples: onepass verify\n"
      "          onepass verify softmax 64x50257 bf16 temperature=row mask=lengths\n"
      "          onepass verify --workload workloads/test_row_ops.txt");
  const auto flags = std::make_shared<Flags>();
  command.option("problem", flags->words,
                 "[OP] [SHAPE [DTYPE[:OUT]] [OPTION ...]]; see list --options");
  command.option("--workload", flags->workload, "read problems from this file, one per line");
  command.option("--variant", flags->variant,
                 "try only this variant; auto: only what the dispatcher chooses");
  command.option("--device", flags->device, "run every problem on the GPU only").one_of({"cuda"});
  command.flag("--fills", flags->all_fills,
               "try every fill, not just the problem's; the default without a problem");
  command.option("--json", flags->json, "write the outcome to this file");
  command.run([flags] { return run(*flags); });
}

}  // namespace onepass::cli
