// onepass compare: what it matches, what it says, how it ends.
// Not under sanitizers: judges numbers, and starts the program.
#include "cli/measure/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

using nlohmann::json;

Row chosen(const std::string& problem, double us, const std::string& variant = "block") {
  Row row;
  row.op = problem.substr(0, problem.find(' '));
  row.variant = variant;
  row.role = "ship";
  row.chosen = true;
  row.problem = problem;
  row.dtype = "f32";
  row.median_us = us;
  row.verified = true;
  for (const double apart : {0.999, 1.0, 1.001, 1.0, 1.0}) row.rounds_us.push_back(us * apart);
  return row;
}

Row copy_of(const std::string& problem, double us) {
  Row row = chosen(problem, us, "copy");
  row.role = "peer";
  row.chosen = row.verified = false;
  return row;
}

Results on_gpu(std::vector<Row> rows) {
  Results results;
  results.environment.device = "NVIDIA H200";
  results.environment.sm = 90;
  results.environment.commit = "abc123";
  results.environment.date = "2025-01-02T03:04:05Z";
  results.rows = std::move(rows);
  return results;
}

Results on_cpu(std::vector<Row> rows) {
  Results results = on_gpu(std::move(rows));
  results.environment.device = "cpu";
  results.environment.sm = 0;
  results.environment.cpu = "Neoverse-V1";
  results.environment.threads = 2;
  return results;
}

const std::vector<Row> kRows = {chosen("softmax 64x64 f32", 100), copy_of("softmax 64x64 f32", 90),
                                chosen("softmax 8x8 f32", 50), copy_of("softmax 8x8 f32", 40),
                                chosen("topk 64x64 f32", 200, "keep")};

// All times of our own multiplied.
Results times(Results results, double by) {
  for (Row& row : results.rows) {
    if (row.role == "peer") continue;
    row.median_us *= by;
    for (double& us : row.rounds_us) us *= by;
  }
  return results;
}

// ---- Matching ---------------------------------------------------------------------------------

TEST(CompareTest, MatchesByProblemWhateverTheChosenOneIsCalled) {
  Results after = on_gpu({chosen("topk 64x64 f32", 100, "guess"), chosen("softmax 64x64 f32", 100),
                          chosen("softmax 9x9 f32", 1)});
  Comparison out;
  ASSERT_TRUE(compare({on_gpu(kRows)}, {after}, {}, out).ok());
  ASSERT_EQ(out.rows.size(), 2u);
  EXPECT_EQ(out.rows[0].problem, "softmax 64x64 f32");  // in the order before
  EXPECT_EQ(out.rows[0].judgement.speed, Speed::same);
  EXPECT_EQ(out.rows[1].before, "keep");
  EXPECT_EQ(out.rows[1].after, "guess");
  EXPECT_EQ(out.rows[1].op, "topk");
  EXPECT_EQ(out.rows[1].judgement.speed, Speed::faster);
  EXPECT_NEAR(out.rows[1].judgement.ratio, 2, 1e-9);
  EXPECT_EQ(out.only_before, std::vector<std::string>{"softmax 8x8 f32"});
  EXPECT_EQ(out.only_after, std::vector<std::string>{"softmax 9x9 f32"});
  EXPECT_EQ(count_of(out.rows, Speed::faster), 1);
  EXPECT_EQ(count_of(out.rows, Speed::slower), 0);
  const auto means = geometric_means(out.rows);
  EXPECT_NEAR(means.at("topk"), 2, 1e-9);
  EXPECT_NEAR(means.at("softmax"), 1, 1e-9);
  EXPECT_NEAR(means.at("all"), std::sqrt(2), 1e-9);
}

TEST(CompareTest, AnotherVariantByName) {
  Comparison out;
  ASSERT_TRUE(compare({on_gpu(kRows)}, {times(on_gpu(kRows), 2)}, {.variant = "copy"}, out).ok());
  ASSERT_EQ(out.rows.size(), 2u);
  EXPECT_EQ(out.rows[0].before, "copy");
  EXPECT_EQ(out.rows[0].judgement.speed, Speed::same);
  EXPECT_TRUE(out.only_before.empty());
}

TEST(CompareTest, TheIThFileIsBesideTheIThFile) {
  std::vector<Results> before, after;
  for (const double by : {1.0, 2.0, 0.5, 1.5}) {
    before.push_back(times(on_gpu(kRows), by));
    after.push_back(times(on_gpu(kRows), by * 1.03));
  }
  Comparison out;
  ASSERT_TRUE(compare(before, after, {}, out).ok());
  EXPECT_EQ(out.pairs, 4u);
  EXPECT_EQ(count_of(out.rows, Speed::slower), 3);
  // Not beside another, and none for the last.
  std::swap(after[0], after[1]);
  after.pop_back();
  ASSERT_TRUE(compare(before, after, {}, out).ok());
  EXPECT_EQ(out.pairs, 3u);
  EXPECT_EQ(out.rows[0].judgement.observations, 3);
  EXPECT_EQ(count_of(out.rows, Speed::unsure), 3);
}

TEST(CompareTest, AProblemThatAFileLacksHasFewerPairs) {
  std::vector<Results> before(4, on_gpu(kRows)), after(4, on_gpu(kRows));
  before[1].rows.pop_back();
  after[3].rows.back().median_us = std::numeric_limits<double>::quiet_NaN();  // not measured
  Comparison out;
  ASSERT_TRUE(compare(before, after, {}, out).ok());
  EXPECT_EQ(out.rows[0].judgement.observations, 4);
  EXPECT_EQ(out.rows[2].judgement.observations, 10);  // the rounds of two pairs
}

TEST(CompareTest, ALineThatStandsTwiceIsTwoProblems) {
  const Results twice = on_gpu({chosen("softmax 8x8 f32", 50), chosen("softmax 8x8 f32", 80)});
  Comparison out;
  ASSERT_TRUE(compare({twice}, {twice}, {}, out).ok());
  ASSERT_EQ(out.rows.size(), 2u);
  EXPECT_EQ(out.rows[1].judgement.before_us, 80);
}

TEST(CompareTest, ThresholdsAreTheDevices) {
  Comparison out;
  ASSERT_TRUE(compare({on_gpu(kRows)}, {times(on_gpu(kRows), 1.04)}, {}, out).ok());
  EXPECT_EQ(count_of(out.rows, Speed::slower), 3);
  ASSERT_TRUE(compare({on_cpu(kRows)}, {times(on_cpu(kRows), 1.04)}, {}, out).ok());
  EXPECT_EQ(out.noise.threshold, 0.05);
  EXPECT_EQ(count_of(out.rows, Speed::slower), 0);
  ASSERT_TRUE(compare({on_cpu(kRows)}, {times(on_cpu(kRows), 1.1)}, {}, out).ok());
  EXPECT_EQ(count_of(out.rows, Speed::slower), 3);
  ASSERT_TRUE(
      compare({on_gpu(kRows)}, {times(on_gpu(kRows), 1.04)}, {.threshold_percent = 6}, out).ok());
  EXPECT_EQ(count_of(out.rows, Speed::slower), 0);
}

// A copy is the same before and after: where its times differ, so do others'.
TEST(CompareTest, PeersShowHowFarProcessesLieApart) {
  Results restless = times(on_gpu(kRows), 1.04);
  restless.rows[1].median_us *= 1.06;
  restless.rows[3].median_us /= 1.06;
  Comparison out;
  ASSERT_TRUE(compare({on_gpu(kRows)}, {restless}, {}, out).ok());
  EXPECT_NEAR(out.noise.process, std::log(1.06) / std::sqrt(2), 1e-9);
  EXPECT_EQ(count_of(out.rows, Speed::unsure), 3);
}

TEST(CompareTest, WrongResultsAreNotFaster) {
  Results after = times(on_gpu(kRows), 0.5);
  after.rows[0].verified = false;
  Comparison out;
  ASSERT_TRUE(compare({on_gpu(kRows)}, {after}, {}, out).ok());
  EXPECT_TRUE(out.rows[0].after_wrong);
  EXPECT_FALSE(out.rows[0].before_wrong);
  EXPECT_EQ(out.rows[0].judgement.speed, Speed::unsure);
  EXPECT_EQ(count_of(out.rows, Speed::faster), 2);
}

TEST(CompareTest, DifferentMachinesOnlyWhereAsked) {
  Results other = on_gpu(kRows);
  other.environment.device = "NVIDIA H100";
  Comparison out;
  const Status status = compare({on_gpu(kRows)}, {on_gpu(kRows), other}, {}, out);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(),
            "results of different machines, NVIDIA H200 and NVIDIA H100: --any-machine compares "
            "them");
  EXPECT_TRUE(compare({on_gpu(kRows)}, {other}, {.any_machine = true}, out).ok());
  EXPECT_TRUE(compare({on_gpu(kRows)}, {on_cpu(kRows)}, {.any_machine = true}, out).ok());
  EXPECT_EQ(out.noise.threshold, 0.05);
  EXPECT_FALSE(compare({on_gpu(kRows)}, {on_cpu(kRows)}, {}, out).ok());
}

// ---- The program ------------------------------------------------------------------------------

class CompareProgramTest : public ProgramTest {
 protected:
  void keep(const std::string& name, const Results& results) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    ASSERT_TRUE(save(path(name), results).ok());
  }

  void keep_repeats(double by) const {
    for (const std::string n : {"01", "02", "03", "04", "05"}) {
      keep("ab/before/" + n + ".json", on_gpu(kRows));
      keep("ab/after/" + n + ".json", times(on_gpu(kRows), by));
    }
    put(path("ab/before/notes.txt"), "not results");
  }
};

TEST_F(CompareProgramTest, TheExitCodeSaysWhetherSpeedWasLost) {
  keep("a.json", on_gpu(kRows));
  keep("slower.json", times(on_gpu(kRows), 1.05));
  keep("faster.json", times(on_gpu(kRows), 0.9));
  const std::string same = good({"compare", "a.json", "a.json"}).out;
  EXPECT_TRUE(contains(same, "\n0 FASTER, 0 SLOWER, 3 SAME, 0 UNSURE\n")) << same;
  EXPECT_TRUE(contains(same, "Threshold 1 %")) << same;
  EXPECT_TRUE(contains(good({"compare", "a.json", "faster.json"}).out, "3 FASTER"));
  const Outcome slower = run({"compare", "a.json", "slower.json"});
  EXPECT_EQ(slower.exit, kFailed);
  EXPECT_EQ(slower.err, "");
  EXPECT_TRUE(contains(slower.out, "0 FASTER, 3 SLOWER, 0 SAME, 0 UNSURE")) << slower.out;
  good({"compare", "a.json", "slower.json", "--threshold", "10"});
  good({"compare", "a.json", "slower.json", "--variant", "copy"});
}

TEST_F(CompareProgramTest, FoldersAreRepeats) {
  keep_repeats(1.03);
  const Outcome outcome = run({"compare", "ab/before", "ab/after"});
  EXPECT_EQ(outcome.exit, kFailed) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "5 pairs of processes")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "3 SLOWER")) << outcome.out;
  fs::remove(path("ab/after/05.json"));
  const std::string out = run({"compare", "ab/before", "ab/after"}).out;
  EXPECT_TRUE(contains(out, "4 pairs of processes")) << out;
  EXPECT_TRUE(contains(out, "only the first 4 files are compared")) << out;
}

TEST_F(CompareProgramTest, TellsWhatDiffersAndWhatIsOnOneSideOnly) {
  keep("a.json", on_gpu(kRows));
  keep("b.json", on_gpu({chosen("topk 64x64 f32", 200, "guess"), chosen("topk 9x9 f32", 3)}));
  const std::string out = good({"compare", "a.json", "b.json"}).out;
  EXPECT_TRUE(contains(out, "keep -> guess")) << out;
  EXPECT_TRUE(contains(out, "Only before, 2 problems:\n  softmax 64x64 f32\n  softmax 8x8 f32\n"))
      << out;
  EXPECT_TRUE(contains(out, "Only after, 1 problem:\n  topk 9x9 f32\n")) << out;
}

TEST_F(CompareProgramTest, AsJson) {
  keep_repeats(1.03);
  const Outcome outcome = run({"compare", "ab/before", "ab/after", "--json"});
  EXPECT_EQ(outcome.exit, kFailed);
  const json out = json::parse(outcome.out);
  EXPECT_EQ(out.at("threshold_percent"), 1);
  EXPECT_EQ(out.at("pairs"), 5);
  EXPECT_EQ(out.at("before").at("device"), "NVIDIA H200");
  EXPECT_EQ(out.at("counts").at("SLOWER"), 3);
  EXPECT_NEAR(out.at("geometric_means").at("all").get<double>(), 1 / 1.03, 1e-3);
  ASSERT_EQ(out.at("rows").size(), 3u);
  const json& row = out.at("rows")[0];
  EXPECT_EQ(row.at("problem"), "softmax 64x64 f32");
  EXPECT_EQ(row.at("verdict"), "SLOWER");
  EXPECT_EQ(row.at("before_us"), 100);
  EXPECT_LT(row.at("low"), row.at("ratio"));
  EXPECT_LT(row.at("ratio"), row.at("high"));
}

TEST_F(CompareProgramTest, ResultsOfOlderProgramsLoad) {
  Results old = on_gpu(kRows);
  for (Row& row : old.rows) row.rounds_us.clear();
  keep("old.json", old);
  keep("new.json", on_gpu(kRows));
  const std::string out = good({"compare", "old.json", "new.json"}).out;
  EXPECT_TRUE(contains(out, "0 observations")) << out;
  EXPECT_TRUE(contains(out, "3 UNSURE")) << out;
}

TEST_F(CompareProgramTest, WhatBenchWritesCanBeCompared) {
  for (const std::string name : {"a.json", "b.json"}) {
    good({"bench", "softmax", "--rows", "8", "--cols", "64", "--iters", "2", "--device", "cpu",
          "--variants", "auto", "--json", name});
  }
  const Outcome outcome = run({"compare", "a.json", "b.json"});
  EXPECT_LE(outcome.exit, kFailed) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "softmax 8x64 f32")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "Threshold 5 %")) << outcome.out;
}

TEST_F(CompareProgramTest, Refuses) {
  keep("a.json", on_gpu(kRows));
  keep("cpu.json", on_cpu(kRows));
  keep("other.json", on_gpu({chosen("gate 8x8 f32", 5)}));
  put(path("text.json"), "hello");
  put(path("bare.json"), "{}");
  fs::create_directory(path("empty"));
  fs::create_directory(path("mixed"));
  put(path("mixed/1.json"), "{}");
  bad({"compare", "a.json"}, kUsage, {"after"});
  bad({"compare", "a.json", "missing.json"}, kUsage, {"missing.json", "No such file"});
  bad({"compare", "missing", "a.json"}, kUsage, {"missing", "No such file"});
  bad({"compare", "a.json", "text.json"}, kUsage, {"text.json", "not JSON"});
  bad({"compare", "a.json", "bare.json"}, kUsage, {"bare.json", "schema is missing"});
  bad({"compare", "a.json", "empty"}, kUsage, {"empty", "*.json"});
  bad({"compare", "mixed", "a.json"}, kUsage, {"mixed/1.json", "schema is missing"});
  bad({"compare", "a.json", "cpu.json"}, kUsage, {"NVIDIA H200", "Neoverse-V1", "--any-machine"});
  good({"compare", "a.json", "cpu.json", "--any-machine"});
  bad({"compare", "a.json", "other.json"}, kUsage, {"no problem", "--variant"});
  bad({"compare", "a.json", "a.json", "--variant", "none"}, kUsage, {"'none'"});
  bad({"compare", "a.json", "a.json", "--threshold", "-1"}, kUsage, {"--threshold"});
}

}  // namespace
}  // namespace onepass::cli
