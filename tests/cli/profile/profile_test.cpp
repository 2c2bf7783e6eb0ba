// onepass profile, with scripts in the place of ncu: what it is asked, what becomes of its answer.
// Not under sanitizers: starts the program, which the subset does not build.
#include "cli/profile/profile.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kHeader =
    R"("ID","Kernel Name","gpu__time_duration.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","lts__throughput.avg.pct_of_peak_sustained_elapsed","l1tex__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active","launch__registers_per_thread","dram__bytes_read.sum","dram__bytes_write.sum"
"","","ns","%","%","%","%","%","register/thread","byte","byte"
)";

class ProfileTest : public ProgramTest {
 protected:
  // A Profiler whose ncu is this script.
  Profiler fake(const std::string& script, double seconds = 30) const {
    const std::string ncu = path("ncu");
    put(ncu, "#!/bin/sh\n" + script);
    ::chmod(ncu.c_str(), 0700);
    return {.ncu = ncu, .program = ONEPASS_CLI, .seconds = seconds};
  }

  // Prints the CSV, with the duration of launch a, and of b where there is one.
  static std::string printing(const std::string& launches) {
    return "cat <<'END'\n==PROF== Connected to process 1\n" + std::string(kHeader) + launches +
           "END\n";
  }

  static Case small() {
    Case c;
    EXPECT_TRUE(parse_case("softmax 64x128 f16", c).ok());
    return c;
  }

  // What goes wrong with one variant.
  std::string error_of(const std::string& script, double seconds = 30) {
    Counters counters;
    hopeless_ = false;
    const Status status =
        profile_one(fake(script, seconds), small(), "cpu_row", counters, hopeless_);
    EXPECT_EQ(status.code(), Code::unsupported) << "exit code 3";
    EXPECT_EQ(counters.launches, 0);
    return status.message();
  }

  bool hopeless_ = false;
};

TEST_F(ProfileTest, RowsTableAndJson) {
  // The variant is the last word. The second is twice as quick as the first, reading half.
  const Profiler profiler = fake(
      "for variant; do :; done\n"
      "case $variant in\n"
      "cpu_serial)\n" +
      printing("\"0\",\"k\",\"20,000\",\"20\",\"21\",\"22\",\"23\",\"24\",\"25\",\"2,000,000\","
               "\"1,000,000\"\n") +
      ";;\ncpu_row)\n" +
      printing("\"0\",\"k\",\"5,000\",\"60\",\"21\",\"22\",\"23\",\"24\",\"25\",\"1,000,000\","
               "\"0\"\n\"1\",\"k\",\"5,000\",\"20\",\"21\",\"22\",\"23\",\"n/a\",\"30\",\"0\","
               "\"1,000,000\"\n") +
      ";;\n*)\n" +
      printing("\"0\",\"k\",\"1,000\",\"20\",\"21\",\"22\",\"23\",\"24\",\"25\",\"2\",\"1\"\n") +
      ";;\nesac\n");
  Profile out;
  std::vector<std::string> told;
  const Status status = profile(
      profiler, small(), {"cpu_serial", "cpu_row", "cudnn_accurate"},
      [&](const std::string& what) { told.push_back(what); }, out.rows);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(told.size(), 3u);

  const std::string table = table_of(out.rows);
  EXPECT_TRUE(contains(table, "softmax 64x128 f16  cpu_serial      20.0      20")) << table;
  EXPECT_TRUE(contains(table, "DRAM bytes read 0.50x (2.0 -> 1.0 MB)")) << table;

  const json all = json::parse(to_json(out));
  EXPECT_EQ(all.at("schema"), 1);
  EXPECT_TRUE(all.at("environment").contains("driver"));
  ASSERT_EQ(all.at("rows").size(), 3u);
  EXPECT_EQ(all.at("rows")[1], json::parse(R"json({"op": "softmax", "variant": "cpu_row",
      "role": "ship", "problem": "softmax 64x128 f16", "dtype": "f16", "shape": [64, 128],
      "launches": 2, "duration_us": 10.0, "dram_percent": 40.0, "l2_percent": 21.0,
      "l1_percent": 22.0, "sm_percent": 23.0, "occupancy_percent": null, "registers": 30.0,
      "dram_read_bytes": 1000000.0, "dram_write_bytes": 1000000.0,
      "moved": "DRAM bytes read 0.50x (2.0 -> 1.0 MB)"
})json"));
  EXPECT_EQ(all.at("rows")[0].at("moved"), "") << "nothing stands before the first";
  EXPECT_EQ(all.at("rows")[2].at("role"), "peer");
  EXPECT_EQ(all.at("rows")[2].at("moved"), "") << "a peer is no step";
}

TEST_F(ProfileTest, WhatNcuIsAsked) {
  const Profiler profiler = fake("for word; do echo \"$word\"; done > " + path("words") + "\n" +
                                 printing("\"0\",\"k\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
                                          "\"1\",\"1\"\n"));
  Counters counters;
  ASSERT_TRUE(profile_one(profiler, small(), "cpu_row", counters, hopeless_).ok());
  const std::string words = get(path("words"));
  EXPECT_TRUE(words.starts_with("--csv\n--page\nraw\n")) << words;
  EXPECT_TRUE(words.ends_with(std::string("\n") + ONEPASS_CLI +
                              "\nprofile\nsoftmax\n--child\n--problem\nsoftmax 64x128 f16\n"
                              "--variants\ncpu_row\n"))
      << words;
}

TEST_F(ProfileTest, CountersThatMayNotBeRead) {
  const std::string error = error_of(
      "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
      "Performance Counters on the target device 0.' >&2; exit 1");
  for (const std::string_view advice :
       {"ERR_NVGPUCTRPERM", "as root", "sudo", "NVreg_RestrictProfilingToAdminUsers=0",
        "/etc/modprobe.d", "--cap-add=SYS_ADMIN"}) {
    EXPECT_TRUE(contains(error, advice)) << error;
  }
  EXPECT_TRUE(hopeless_) << "the next variant would meet the same";
}

TEST_F(ProfileTest, NcuThatHangsIsKilled) {
  const std::string error = error_of("echo '==PROF== Connected'; sleep 60", 0.3);
  EXPECT_TRUE(contains(error, "did not end within 0.3 s")) << error;
  EXPECT_TRUE(contains(error, "--timeout")) << error;
  EXPECT_FALSE(hopeless_);
}

TEST_F(ProfileTest, AProgramThatFailed) {
  const std::string error = error_of(
      "echo '==PROF== Connected to process 1'; echo 'onepass: out of device memory' >&2\n"
      "echo '==ERROR== The application returned an error code (3).'; exit 3");
  EXPECT_EQ(error,
            "ncu ended with code 3:\nonepass: out of device memory\n"
            "==ERROR== The application returned an error code (3).");
  EXPECT_EQ(error_of("echo who knows; exit 9"), "ncu ended with code 9:\nwho knows");
  EXPECT_EQ(error_of("exit 9"), "ncu ended with code 9");
  EXPECT_TRUE(contains(error_of("kill -SEGV $$"), "signal 11"));
}

TEST_F(ProfileTest, NoKernels) {
  EXPECT_EQ(error_of("echo '==WARNING== No kernels were profiled.'"),
            "ncu profiled no kernel:\n==WARNING== No kernels were profiled.");
  EXPECT_EQ(error_of("exit 0"), "ncu profiled no kernel");
  EXPECT_TRUE(contains(error_of("echo '\"ID\",\"Kernel Name\"'"), "none of the counters"));
}

TEST_F(ProfileTest, OneThatFailsDoesNotCostTheOthers) {
  const Profiler profiler =
      fake("for variant; do :; done\n[ $variant = cpu_row ] && exit 4\n" +
           printing("\"0\",\"k\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"\n"));
  std::vector<ProfileRow> rows;
  const Status status = profile(
      profiler, small(), {"cpu_serial", "cpu_row", "cpu_short"}, [](const std::string&) {}, rows);
  EXPECT_EQ(status.message(), "softmax 64x128 f16, cpu_row: ncu ended with code 4");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].variant, "cpu_short");
  EXPECT_EQ(rows[1].moved, "nothing by 3 points");
}

TEST_F(ProfileTest, WithoutNcu) {
  std::string found;
  const Status status = find_ncu("no-such-ncu", found);
  EXPECT_EQ(status.code(), Code::unsupported);
  for (const std::string_view part :
       {"'no-such-ncu'", "CUDA toolkit", "nsight-compute", "--ncu PATH", "PATH"}) {
    EXPECT_TRUE(contains(status.message(), part)) << status.message();
  }
  ASSERT_TRUE(find_ncu(fake("").ncu, found).ok());
  EXPECT_EQ(found, path("ncu"));
  bool hopeless = false;
  Counters counters;
  EXPECT_FALSE(
      profile_one({.ncu = "/no/ncu", .program = "x"}, small(), "v", counters, hopeless).ok());
  EXPECT_TRUE(hopeless);
}

// ---- The command ------------------------------------------------------------------------------

TEST_F(ProfileTest, TheCommandAndItsFlags) {
  const std::string help = good({"profile", "--help"}).out;
  EXPECT_TRUE(contains(help, "Example: onepass profile softmax")) << help;
  EXPECT_FALSE(contains(help, "--child")) << "for ncu alone";
  bad({"profile", "softmax", "--no-such-flag"}, kUsage, {"--no-such-flag"});
  bad({"profile", "softmax", "--rows", "0"}, kUsage, {"--rows"});
  bad({"profile", "softmax", "--timeout", "0"}, kUsage, {"--timeout"});
  bad({"profile", "softmux"}, kUsage, {"'softmux'"});
  bad({"profile", "softmax", "--problem", "4xx4"}, kUsage, {"'4xx4'"});
  bad({"profile", "softmax", "--dtype", "f33"}, kUsage, {"'f33'"});
}

TEST_F(ProfileTest, FromFlagsToTableAndFile) {
  std::vector<std::string> asked;
  const ProfileTarget target = {
      .variants =
          [&](const Case& c, const std::string& selection, std::vector<std::string>& names) {
            asked.push_back(to_string(c) + " " + selection);
            names = {"cpu_serial", "cpu_row"};
            return Status{};
          },
      .run =
          [](const Case&, const std::string&) {
            return Status{Code::internal, "not here"};
          },
      .environment =
          [] {
            Environment environment;
            environment.device = "a GPU";
            return environment;
          }};
  ProfileRequest request;
  request.op = "softmax";
  request.rows = 8;
  request.cols = 16;
  request.dtypes = {"f32", "f16"};
  request.variants = "some";
  request.json = path("p.json");
  request.profiler =
      fake(printing("\"0\",\"k\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"\n"));
  testing::internal::CaptureStdout();
  const Status status = profile(request, target);
  const std::string table = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(asked,
            (Words{"softmax 8x16 f32 device=cuda some", "softmax 8x16 f16 device=cuda some"}));
  EXPECT_EQ(std::ranges::count(table, '\n'), 6) << table;
  const json all = json::parse(get(path("p.json")));
  EXPECT_EQ(all.at("environment").at("device"), "a GPU");
  ASSERT_EQ(all.at("rows").size(), 4u);
  EXPECT_EQ(all.at("rows")[2].at("problem"), "softmax 8x16 f16 device=cuda");
  EXPECT_EQ(all.at("rows")[2].at("moved"), "") << "another problem is no step";
  EXPECT_EQ(all.at("rows")[3].at("moved"), "nothing by 3 points");

  request.child = true;
  EXPECT_EQ(profile(request, target).message(), "not here");

  request.child = false;
  fs::remove(request.json);
  request.profiler = fake("exit 5");
  EXPECT_TRUE(contains(profile(request, target).message(), "cpu_row: ncu ended with code 5"));
  EXPECT_FALSE(fs::exists(request.json)) << "there is nothing to tell";
}

// Where there is a GPU, ncu is what is missing.
TEST_F(ProfileTest, TheCommandWithoutGpuOrNcu) {
  const Outcome outcome = run({"profile", "softmax", "--ncu", "no-such-ncu", "--json", "p.json"});
  EXPECT_EQ(outcome.exit, kCannot) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "GPU") || contains(outcome.err, "no-such-ncu")) << outcome.err;
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace onepass::cli
