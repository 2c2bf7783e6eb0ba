// The program as its users meet it: help, flags and exit codes; list, verify and explain; progress.
// Not under sanitizers: starts the program, which the subset does not build.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/files/table.hpp"
#include "cli/ops/call.hpp"
#include "cli/problem/options.hpp"
#include "core/machine.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

using nlohmann::json;

const Words kSubcommands = {"list",    "verify",  "bench",       "compare",  "explain",
                            "profile", "softmax", "log-softmax", "logsumexp"};

// ---- Help, flags, exit codes ------------------------------------------------------------------

TEST_F(ProgramTest, HelpTellsExitCodesAndEverySubcommand) {
  const std::string help = good({"--help"}).out;
  for (const std::string& name : kSubcommands) EXPECT_TRUE(contains(help, "  " + name)) << name;
  for (const std::string_view part :
       {"Exit codes: 0 done", "1 a verification failed", "2 bad flags", "3 this machine"}) {
    EXPECT_TRUE(contains(help, part)) << help;
  }
  EXPECT_TRUE(good({"--version"}).out.starts_with("onepass ")) << good({"--version"}).out;
}

TEST_F(ProgramTest, HelpOfEverySubcommandShowsAnExample) {
  for (const std::string& name : kSubcommands) {
    const std::string help = good({name, "--help"}).out;
    const std::size_t example = help.find("Example");
    ASSERT_NE(example, std::string::npos) << help;
    EXPECT_TRUE(contains(help.substr(example), "onepass " + name)) << help;
  }
}

TEST_F(ProgramTest, UnknownFlagsAndMissingArgumentsAreUsageErrors) {
  for (const std::string& name : kSubcommands) {
    bad({name, "a", "b", "--no-such-flag"}, kUsage, {"--no-such-flag"});
  }
  bad({}, kUsage, {"subcommand"});
  bad({"softmux", "x.npy"}, kUsage, {"no subcommand 'softmux'", "softmax, log-softmax"});
  bad({"--no-such-flag"}, kUsage, {"no option '--no-such-flag'", "list, verify"});
  bad({"softmax", "only-one.npy"}, kUsage, {"out"});
  bad({"explain"}, kUsage, {"problem"});
  bad({"bench", "softmax", "--rows", "many"}, kUsage, {"--rows", "many"});
  bad({"bench", "softmax", "--rows", "0"}, kUsage, {"--rows"});
  bad({"bench", "softmax", "--iters", "-1"}, kUsage, {"--iters"});
  bad({"softmax", "a", "b", "--threads", "-1"}, kUsage, {"--threads"});
  // A number that does not fit is none, not the last one that does.
  bad({"softmax", "a", "b", "--threads", "4294967296"}, kUsage, {"--threads", "4294967296"});
  bad({"softmax", "a", "b", "--axis", "4294967296"}, kUsage, {"--axis", "4294967296"});
  bad({"softmax", "a", "b", "--axis", "99999999999999999999"}, kUsage,
      {"--axis", "99999999999999999999"});
  bad({"softmax", "a", "b", "--scale", "1e999"}, kUsage, {"--scale", "1e999"});
  bad({"topk", "a", "--k", "99999999999999999999"}, kUsage, {"--k", "99999999999999999999"});
  bad({"sample", "a", "--top-k", "-9223372036854775809"}, kUsage,
      {"--top-k", "-9223372036854775809"});
  bad({"bench", "softmax", "--rows", "9223372036854775808"}, kUsage,
      {"--rows", "9223372036854775808"});
}

// What nobody can read was not done.
TEST_F(ProgramTest, OutputThatIsLostIsAnError) {
  write("x.npy", DType::f32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Words bench = {"bench", "softmax", "--rows", "4",      "--cols",
                       "40",    "--iters", "1",      "--runs", "1"};
  Words saved = bench;
  saved.insert(saved.end(), {"--json", "results.json"});
  good(saved);
  const std::string full = "standard output: cannot write: No space left on device";
  for (const Words& words :
       {Words{"--help"}, Words{"--version"}, Words{"list"}, Words{"list", "--json"},
        Words{"topk", "x.npy", "--k", "3"}, Words{"topk", "x.npy", "--k", "3", "--json"},
        Words{"sample", "x.npy"}, Words{"sample", "x.npy", "--json"}, Words{"softmax", "--help"},
        Words{"explain", "softmax", "4x4"}, Words{"explain", "softmax", "4x4", "--json"},
        Words{"verify", "softmax", "3x40", "variant=cpu_row"},
        Words{"compare", "results.json", "results.json"},
        Words{"compare", "results.json", "results.json", "--json"}, bench}) {
    const int lost = ::open("/dev/full", O_WRONLY);
    const Outcome outcome = run(words, {}, -1, lost);
    ::close(lost);
    EXPECT_EQ(outcome.exit, kCannot) << words[0] << " " << outcome.err;
    EXPECT_EQ(outcome.err, "onepass: " + full + "\n") << words[0];
  }
}

// ---- list -------------------------------------------------------------------------------------

TEST_F(ProgramTest, ListFitsATerminalAndSaysOnceWhatCannotRun) {
  std::istringstream lines(good({"list", "--op", "softmax"}).out);
  int reasons = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), 100U) << line;
    reasons += contains(line, "softmax on a GPU, but not here") ? 1 : 0;
  }
  EXPECT_LE(reasons, 1);
  EXPECT_FALSE(contains(good({"list", "--op", "softmax"}).out, "attention"));
  for (const json& row : json::parse(good({"list", "--role", "ship", "--json"}).out)) {
    EXPECT_EQ(row.at("role"), "ship");
  }
  bad({"list", "--op", "softmux"}, kUsage, {"there is no 'softmux' (did you mean 'softmax'?)"});
  bad({"list", "--role", "shop"}, kUsage, {"shop"});
}

TEST_F(ProgramTest, TheNearestNameIsSuggested) {
  bad({"verify", "softmox", "4x4"}, kUsage, {"'softmox'", "did you mean 'softmax'?"});
  bad({"verify", "softmax", "4x4", "bf61"}, kUsage, {"did you mean 'bf16'?"});
  bad({"verify", "softmax", "4x4", "temperatur=2"}, kUsage, {"did you mean 'temperature'?"});
  bad({"explain", "softmax", "4x4", "variant=cpu_rows"}, kUsage, {"did you mean 'cpu_row'?"});
  bad({"bench", "softmax", "--rovs", "3"}, kUsage, {"no option --rovs", "did you mean '--rows'?"});
  bad({"benhc"}, kUsage, {"'benhc'", "did you mean 'bench'?"});
  bad({"bench", "softmax", "--rows", "-3"}, kUsage, {"--rows: -3 is not a positive number"});
}

TEST_F(ProgramTest, ListNamesEveryOption) {
  const std::string text = "\n" + good({"list", "--options"}).out;
  for (const OptionRow& option : options()) {
    const std::string word = fmt::format("\n{}{}", option.key, option.is_flag ? " " : "=");
    EXPECT_TRUE(contains(text, word)) << word << text;
  }
  EXPECT_EQ(json::parse(good({"list", "--options", "--json"}).out).size(), options().size());
}

TEST_F(ProgramTest, ListNamesEveryOpAndVariant) {
  const std::string text = good({"list"}).out;
  const json rows = json::parse(good({"list", "--json"}).out);
  std::set<std::pair<std::string, std::string>> listed;
  for (const json& row : rows) {
    listed.insert({row.at("op").get<std::string>(), row.at("variant").get<std::string>()});
    EXPECT_TRUE(row.at("runs_here").is_boolean());
    EXPECT_EQ(row.at("runs_here").get<bool>(), row.at("why_not").get<std::string>().empty());
    EXPECT_FALSE(row.at("needs").get<std::string>().empty());
    EXPECT_FALSE(row.at("idea").get<std::string>().empty());
    const std::set<std::string> roles = {"teach", "ship", "peer"};
    EXPECT_TRUE(roles.contains(row.at("role").get<std::string>())) << row;
    EXPECT_TRUE(contains(text, "  " + row.at("variant").get<std::string>() + " ")) << row;
  }
  for (const Op op : kRowOps) {
    for (const Variant& v : variants(op)) {
      EXPECT_TRUE(listed.contains({std::string(name(op)), std::string(v.name)})) << v.name;
    }
    EXPECT_TRUE(listed.contains({std::string(name(op)), "copy"}));
  }
  EXPECT_TRUE(listed.contains({"softmax", "onednn"}));
}

// ---- verify -----------------------------------------------------------------------------------

TEST_F(ProgramTest, VerifyOneProblem) {
  const std::string out = good({"verify", "softmax", "3x40", "f16", "--json", "v.json"}).out;
  EXPECT_TRUE(contains(out, " passed, 0 failed\n")) << out;
  EXPECT_FALSE(contains(out, "verify: 0 passed")) << out;
  std::set<std::string> ran;
  for (const json& row : json::parse(get(path("v.json")))) {
    EXPECT_TRUE(row.at("passed").get<bool>()) << row;
    EXPECT_LE(row.at("worst").get<double>(), 1);
    EXPECT_TRUE(row.at("problem").get<std::string>().starts_with("softmax 3x40 f16")) << row;
    ran.insert(row.at("variant").get<std::string>());
  }
  EXPECT_TRUE(ran.contains("cpu_serial"));
  EXPECT_TRUE(ran.contains("cpu_row"));
  EXPECT_TRUE(ran.contains("cpu_short"));
  EXPECT_FALSE(ran.contains("cpu_lanes")) << "rows are not neighbours";
}

TEST_F(ProgramTest, VerifyAWorkload) {
  put(path("w.txt"), "# two\nsoftmax 3x40\n\nlogsumexp 5x20 f64  # and a comment\n");
  const std::string out = good({"verify", "--workload", "w.txt", "--fills"}).out;
  EXPECT_TRUE(contains(out, "logsumexp")) << out;
  EXPECT_TRUE(contains(out, " passed, 0 failed\n")) << out;
  bad({"verify", "softmax", "3x4", "--workload", "w.txt"}, kUsage, {"--workload"});
  bad({"verify", "--workload", "missing.txt"}, kUsage, {"missing.txt"});
  put(path("w.txt"), "softmax 3x40\nsoftmax 3y40\n");
  bad({"verify", "--workload", "w.txt"}, kUsage, {"w.txt:2", "3y40"});
}

TEST_F(ProgramTest, VerifyOfNamesThatDoNotExistFails) {
  bad({"verify", "softmux", "4x4"}, kUsage, {"'softmux'"});
  bad({"verify", "softmax", "4x4", "variant=cpu_none"}, kUsage, {"'cpu_none'", "cpu_row"});
  bad({"verify", "softmax", "4x4", "--variant", "cpu_none"}, kUsage, {"'cpu_none'", "cpu_row"});
  bad({"verify", "softmax", "4x4", "isa=none"}, kCannot, {"'none'"});
  bad({"verify", "softmax", "4x513", "variant=cpu_short"}, kCannot, {"cpu_short", "512"});
  const Outcome fill = run({"verify", "softmax", "4x4", "fill=none"});
  EXPECT_NE(fill.exit, kDone) << fill.out;
  EXPECT_TRUE(contains(fill.err, "none")) << fill.err;
}

TEST_F(ProgramTest, AFailurePrintsTheProblemThatReproducesIt) {
  bad({"verify", "log_softmax", "4x5", "bf16", "mask=causal", "seed=3", "variant=cpu_none"}, kUsage,
      {"FAILED onepass verify log_softmax 4x5 bf16 mask=causal variant=cpu_none seed=3"});
}

TEST_F(ProgramTest, ProblemsThatAreNone) {
  for (const std::string command : {"verify", "explain"}) {
    bad({command, "softmax", "4xx4"}, kUsage, {"'4xx4'"});
    bad({command, "softmax", "4x-4"}, kUsage, {"4x-4"});
    bad({command, "softmax", "4x4", "f33"}, kUsage, {"'f33'"});
    bad({command, "softmax", "4x4", "axis=2"}, kUsage, {"axis 2"});
    bad({command, "softmax", "4x4", "scale=two"}, kUsage, {"scale=two"});
    bad({command, "softmax", "4x4", "color=red"}, kUsage, {"color=red"});
    bad({command, "softmax", "1x1x1x1x1x1x1x1x1"}, kUsage, {"9 dimensions"});
    bad({command, "softmax", "9999999999x9999999999"}, kUsage, {"9999999999x9999999999"});
    bad({command, "softmax", "f32"}, kUsage, {"shape"});
  }
}

// A problem is only words; memory for it must be asked for before it is used.
TEST_F(ProgramTest, ProblemsThatFitInNoMemory) {
  for (const std::string shape : {"100000000x100000000", "1x2305843009213693952",
                                  "4611686018427387904", "1152921504606846976x7"}) {
    for (const Words& options : {Words{"f32"}, Words{"f64"}, Words{"f64", "step=4"},
                                 Words{"f16", "pad=4611686018427387904"}}) {
      Words words = {"verify", "softmax", shape};
      words.insert(words.end(), options.begin(), options.end());
      const Outcome outcome = run(words);
      EXPECT_TRUE(outcome.exit == kUsage || outcome.exit == kCannot)
          << outcome.exit << " " << shape << " " << options.back() << "\n"
          << outcome.err;
    }
  }
}

TEST_F(ProgramTest, TooLittleMemoryIsNoFailedVerification) {
  for (const Words& problem :
       {Words{"softmax", "1000000x1000000"}, Words{"topk", "2000000x9000000"},
        Words{"attention", "1x1x40000000x512", "f32"}}) {
    for (const std::string command : {"verify", "bench"}) {
      Words words = {command};
      if (command == "bench") words.emplace_back("--problem");
      std::string whole;
      for (const std::string& word : problem) whole += (whole.empty() ? "" : " ") + word;
      words.push_back(whole);
      bad(words, kCannot, {"memory"});
    }
  }
}

// The system may give fewer threads than a plan asked for.
TEST_F(ProgramTest, FewerThreadsThanAskedFor) {
  for (const std::string limit : {"1", "2"}) {
    for (const std::string variant : {"cpu_row", "cpu_split"}) {
      const Outcome outcome =
          run({"verify", "softmax", "3x20000", "threads=3", "variant=" + variant},
              {"OMP_THREAD_LIMIT=" + limit});
      EXPECT_EQ(outcome.exit, kDone) << limit << " " << variant << "\n" << outcome.err;
    }
  }
}

// ---- explain ----------------------------------------------------------------------------------

TEST_F(ProgramTest, ExplainForEveryMachine) {
  std::vector<std::string> machines = {"host"};
  for (const Machine& m : known_machines()) machines.emplace_back(m.name);
  EXPECT_GE(machines.size(), 4u);
  for (const std::string& machine : machines) {
    for (const Op op : kRowOps) {
      const Words words = {"explain",      std::string(name(op)), "7x50257", "bf16",
                           "mask=lengths", "--machine",           machine};
      const std::string text = good(words).out;
      for (const std::string_view part : {"problem", "machine", "plan", "because", "bytes"}) {
        EXPECT_TRUE(contains(text, part)) << text;
      }
      EXPECT_TRUE(contains(text, machine)) << text;
      Words as_json = words;
      as_json.emplace_back("--json");
      const json out = json::parse(good(as_json).out);
      EXPECT_EQ(out.at("problem"), std::string(name(op)) + " 7x50257 bf16 mask=lengths");
      EXPECT_EQ(out.at("machine"), machine);
      EXPECT_FALSE(out.at("isa").get<std::string>().empty());
      EXPECT_GE(out.at("reasons").size(), 2u);
      EXPECT_GE(out.at("planned_bytes"), out.at("least_bytes"));
      EXPECT_TRUE(contains(text, out.at("plan").get<std::string>())) << text;
    }
  }
}

TEST_F(ProgramTest, ExplainLeastBytes) {
  const json softmax = json::parse(good({"explain", "softmax", "10x100", "f32", "--json"}).out);
  EXPECT_EQ(softmax.at("least_bytes"), 8000);
  const json backward =
      json::parse(good({"explain", "softmax_backward", "10x100", "f16:f32", "--json"}).out);
  EXPECT_EQ(backward.at("least_bytes"), 1000 * (2 * 2 + 4));
  const json sums = json::parse(good({"explain", "logsumexp", "10x100", "f64", "--json"}).out);
  EXPECT_EQ(sums.at("least_bytes"), 8000);
}

TEST_F(ProgramTest, ExplainRefuses) {
  bad({"explain", "softmax", "4x4", "--machine", "abacus"}, kUsage, {"'abacus'", "host", "avx2-8"});
  bad({"explain", "softmax", "4x4", "variant=cpu_none"}, kUsage, {"'cpu_none'", "cpu_row"});
  bad({"explain", "softmax", "4x4", "variant=cpu_lanes"}, kCannot, {"cpu_lanes"});
}

TEST_F(ProgramTest, ExplainTellsThePlanThatRuns) {
  for (const std::string problem :
       {"softmax 4x40 f32", "softmax 4x4000 f16", "softmax 3x50000 f32 threads=2",
        "softmax 9x30x7 f32 axis=1", "softmax 9x30x1 f32 axis=1", "softmax 1x30x7 f32 axis=1",
        "softmax 40x1 f32 axis=0", "softmax 30 f32 step=2", "log_softmax 40x9 f64 axis=0",
        "log_softmax 40x9 f32 axis=0 pad=2", "logsumexp 40x9 bf16 axis=0", "softmax 5x40 f64",
        "softmax 5x40 f32 mask=causal", "softmax_backward 2x40000 f32 threads=2",
        "cross_entropy 2x40000 bf16 threads=2", "cross_entropy_backward 8x1 f32 step=3",
        "softmax 4x0 f64", "softmax 0x4 f32", "softmax 2x40x3 f32 axis=1 in_place"}) {
    Words words = {"explain", "--json"};
    std::istringstream split(problem);
    for (std::string word; split >> word;) words.push_back(word);
    Case c;
    ASSERT_TRUE(parse_case(problem, c).ok());
    Call call;
    ASSERT_TRUE(call.make(c).ok());
    ASSERT_TRUE(call.reset().ok());
    Plan plan;
    const Status status = call.run(Context::cpu(c.threads), "", &plan);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(json::parse(good(words).out).at("plan"), to_string(plan)) << problem;
  }
}

// ---- Progress ---------------------------------------------------------------------------------

// Two problems of a second each, however fast the machine: long enough for a bar.
const Words kLongRun = {"bench",      "softmax",      "--rows",    "8",  "--cols",    "64",
                        "--iters",    "100000000",    "--runs",    "1",  "--seconds", "0.5",
                        "--variants", "cpu_row,copy", "--threads", "1,1"};

bool draws(std::string_view text) { return contains(text, "\r") || contains(text, "\x1b"); }

TEST_F(ProgramTest, NothingIsDrawnWhereThereIsNoTerminalSlow) {
  const Outcome outcome = good(kLongRun);
  EXPECT_FALSE(draws(outcome.out)) << outcome.out;
}

TEST_F(ProgramTest, ATerminalShowsProgressSlow) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const int other_end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(other_end, 0);
  const Outcome outcome = run(kLongRun, {}, other_end);
  EXPECT_EQ(outcome.exit, kDone);
  std::string drawn(1 << 16, '\0');
  const ssize_t size = ::read(terminal, drawn.data(), drawn.size());
  drawn.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  EXPECT_TRUE(contains(drawn, "bench [")) << drawn;
  EXPECT_TRUE(drawn.ends_with("\r\x1b[K")) << "the bar is not taken away at the end";
  EXPECT_FALSE(draws(outcome.out)) << outcome.out;
  ::close(other_end);
  ::close(terminal);
}

}  // namespace
}  // namespace onepass::cli
