// onepass bench: what it measures, what it writes, what it refuses.
// Not under sanitizers: starts the program, which the subset does not build.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/measure/peers.hpp"
#include "cli/measure/results.hpp"
#include "dispatch/variant.hpp"
#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

using nlohmann::json;

class BenchTest : public ProgramTest {
 protected:
  // A bench of something tiny; what it wrote to r.json.
  Results bench(Words words) const {
    words.insert(words.begin(), "bench");
    for (const char* word : {"--iters", "2", "--runs", "2", "--warmup", "1", "--json", "r.json"}) {
      words.emplace_back(word);
    }
    good(words);
    Results results;
    const Status status = load(path("r.json"), results);
    EXPECT_TRUE(status.ok()) << status.message();
    return results;
  }
};

TEST_F(BenchTest, WritesTheSchema) {
  const Results results = bench({"softmax", "--rows", "8", "--cols", "64"});
  const json raw = json::parse(get(path("r.json")));
  EXPECT_EQ(raw.at("schema"), 1);
  for (const char* key :
       {"device", "cpu", "isa", "threads", "sm", "driver", "cuda", "commit", "dirty", "date"}) {
    EXPECT_TRUE(raw.at("environment").contains(key)) << key;
  }
  EXPECT_GT(raw.at("limits").at("copy_gbps"), 0);
  for (const json& row : raw.at("rows")) {
    for (const char* key :
         {"op", "variant", "role", "chosen", "problem", "dtype", "shape", "median_us", "p10_us",
          "p90_us", "bytes", "gbps", "percent_of_copy", "verified"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
  EXPECT_EQ(results.environment.device, "cpu");
  EXPECT_GT(results.environment.threads, 0);
  std::set<std::string> measured;
  int chosen = 0;
  for (const Row& row : results.rows) {
    measured.insert(row.variant);
    chosen += row.chosen ? 1 : 0;
    EXPECT_EQ(row.op, "softmax");
    EXPECT_EQ(row.problem, "softmax 8x64 f32");
    EXPECT_EQ(row.shape, (std::vector<std::int64_t>{8, 64}));
    EXPECT_EQ(row.bytes, 8 * 64 * 4 * 2);
    EXPECT_GT(row.median_us, 0);
    EXPECT_GT(row.p10_us, 0);
    EXPECT_LE(row.p10_us, row.median_us);
    EXPECT_LE(row.median_us, row.p90_us);
    EXPECT_EQ(row.rounds_us.size(), 2u);  // as many as runs
    for (const double us : row.rounds_us) EXPECT_GT(us, 0);
    EXPECT_NEAR(row.gbps, static_cast<double>(row.bytes) / row.median_us / 1e3, row.gbps * 0.01);
    if (row.role != "peer") {
      EXPECT_TRUE(row.verified) << row.variant;
    }
    if (row.variant == "copy") {
      EXPECT_EQ(row.percent_of_copy, 100);
    }
  }
  EXPECT_EQ(chosen, 1);
  for (const Variant& v : variants(Op::softmax)) {
    if (v.device != Device::cpu) continue;
    if (v.name != "cpu_lanes") {
      EXPECT_TRUE(measured.contains(std::string(v.name))) << v.name;
    }
  }
  EXPECT_TRUE(measured.contains("copy"));
}

TEST_F(BenchTest, ChoosesWhatToMeasure) {
  const Results named = bench({"softmax", "--rows", "8", "--cols", "64", "--dtype", "f32,bf16:f32",
                               "--threads", "1,2", "--variants", "cpu_row,copy"});
  std::set<std::pair<std::string, std::string>> measured;
  for (const Row& row : named.rows) measured.insert({row.problem, row.variant});
  EXPECT_EQ(named.rows.size(), 8u);
  EXPECT_EQ(measured.size(), 8u);
  EXPECT_TRUE(measured.contains({"softmax 8x64 bf16:f32 threads=2", "cpu_row"}));

  for (const Row& row :
       bench({"softmax", "--rows", "8", "--cols", "64", "--variants", "auto"}).rows) {
    EXPECT_TRUE(row.chosen || row.role == "peer") << row.variant;
  }
  put(path("w.txt"), "4x50 f64\nlogsumexp 4x60 f16\n");
  std::set<std::string> problems;
  for (const Row& row : bench({"log_softmax", "--workload", "w.txt"}).rows)
    problems.insert(row.problem);
  EXPECT_EQ(problems, (std::set<std::string>{"log_softmax 4x50 f64", "logsumexp 4x60 f16"}));
}

TEST_F(BenchTest, EveryOpAndOptionIsMeasuredAndRight) {
  for (const std::string problem :
       {"softmax 8x64 f32 in_place", "softmax 16x64 f16 mask=causal lse", "log_softmax 8x64 f64",
        "logsumexp 8x64 bf16", "softmax_backward 8x64 f32", "softmax_backward 8x64 f32 in_place",
        "log_softmax_backward 8x64 f16", "cross_entropy 8x64 f32 smoothing=0.1",
        "cross_entropy 8x64 f32 reduction=mean", "cross_entropy_backward 8x64 f32 in_place",
        "cross_entropy_backward 8x64 f32 reduction=mean", "softmax 8x64x3 f32 axis=1"}) {
    const Results results = bench({"--problem", problem});
    EXPECT_GE(results.rows.size(), 3u) << problem;
    for (const Row& row : results.rows) {
      EXPECT_TRUE(row.verified || row.role == "peer") << problem << " " << row.variant;
    }
  }
}

TEST_F(BenchTest, RestsBeforeEveryRun) {
  const auto begin = std::chrono::steady_clock::now();
  const Results results = bench(
      {"softmax", "--rows", "8", "--cols", "64", "--rest", "30", "--variants", "cpu_row,copy"});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took.count(), 2 * 2 * 30);  // two candidates, two runs
  EXPECT_EQ(results.limits.at("rest_ms"), 30);
}

TEST_F(BenchTest, Refuses) {
  const Words tiny = {"bench", "softmax", "--rows", "8",      "--cols",
                      "600",   "--iters", "1",      "--runs", "1"};
  const auto with = [&tiny](Words more) {
    more.insert(more.begin(), tiny.begin(), tiny.end());
    return more;
  };
  bad(with({"--variants", "cpu_none"}), kUsage, {"'cpu_none'", "cpu_row"});
  bad(with({"--variants", "cpu_row,cpu_none"}), kUsage, {"'cpu_none'"});
  bad(with({"--variants", "cpu_short"}), kCannot, {"cpu_short", "512"});
  bad(with({"--dtype", "f31"}), kUsage, {"f31"});
  bad(with({"--rest", "-1"}), kUsage, {"--rest", "-1"});
  bad({"bench", "softmux", "--rows", "8", "--cols", "8"}, kUsage, {"'softmux'"});
  bad({"bench", "softmax", "--problem", "0x8"}, kUsage, {"0x8"});
  bad({"bench", "softmax", "--problem", "8by8"}, kUsage, {"8by8"});
  bad({"bench", "--workload", "missing.txt"}, kUsage, {"missing.txt"});
  bad({"bench", "softmax", "--rows", "100000000", "--cols", "100000000"}, kCannot, {"memory"});
}

TEST_F(BenchTest, AnUnwritableResultIsAnError) {
  fs::create_directory(path("directory"));
  for (const std::string target : {"directory", "missing/r.json"}) {
    const Outcome outcome = run({"bench", "softmax", "--rows", "8", "--cols", "8", "--iters", "1",
                                 "--runs", "1", "--json", target});
    EXPECT_GE(outcome.exit, kUsage) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, target)) << outcome.err;
  }
  EXPECT_EQ(names(), std::set<std::string>{"directory"});
  EXPECT_TRUE(fs::is_empty(path("directory")));
}

// What a table lacks it says.
TEST(PeersTest, ThoseThatAreMissingAreNamed) {
  const auto attends = [](Op op, Device device) {
    return op == Op::attention && device == Device::cuda;
  };
  const auto any = [](Op, Device) { return true; };
  const auto nothing = [] { return std::string(); };
  const auto not_built = [] { return std::string("not in this build"); };
  const Peer here{.name = "here", .computes = any, .obstacle = nothing};
  const Peer gone{.name = "gone", .computes = attends, .obstacle = not_built};
  const Peer all[] = {here, gone};
  const Case on_cpu{.op = Op::attention, .device = Device::cpu};
  const Case on_gpu{.op = Op::attention, .device = Device::cuda};
  EXPECT_EQ(missing(all, std::vector{on_cpu}), "");
  EXPECT_EQ(missing(all, std::vector{on_cpu, on_gpu, on_gpu}), "Without gone: not in this build\n");
  EXPECT_EQ(missing({}, std::vector{on_gpu}), "");
}

}  // namespace
}  // namespace onepass::cli
