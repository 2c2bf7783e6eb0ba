// Nsight Compute's text: command line, CSV of several versions, counters joined and put in words.
#include "cli/profile/ncu.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace onepass::cli {
namespace {

// As of 2025: base units, the program's lines and ncu's own around the CSV.
constexpr std::string_view kBase =
    R"csv(==PROF== Connected to process 4711 (/usr/bin/onepass)
==PROF== Profiling "partial" - 0: 0%....50%....100% - 2 passes
a line of the program, with "quotes", and commas
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","l1tex__throughput.avg.pct_of_peak_sustained_elapsed","launch__registers_per_thread","lts__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","byte","byte","%","ns","%","register/thread","%","%","%"
"0","4711","onepass","127.0.0.1","void partial<float, 256>(Args, ""x"")","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","67,108,864","1,024","80.5","30,000","20","32","40.25","10","90"
"1","4711","onepass","127.0.0.1","finish(Args)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","67,108,864","67,108,864","50.5","10,000","60","40","0.25","50","50"
)csv";

// The same launch of an older version with scaled units.
constexpr std::string_view kScaled =
    R"csv("ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"
"","","","","","","","","Mbyte","Kbyte","usecond"
"0","1","onepass","host","naive(Args)","2025-Nov-01 05:00:00","1","7","67.11","1.02","1,234.50"
)csv";

std::vector<Counters> good(std::string_view text) {
  std::vector<Counters> launches;
  const Status status = parse_ncu(text, launches);
  EXPECT_TRUE(status.ok()) << status.message();
  return launches;
}

std::string error_of(std::string_view text) {
  std::vector<Counters> launches(3);
  const Status status = parse_ncu(text, launches);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_TRUE(launches.empty());
  return status.message();
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  const std::size_t at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return out.replace(at, from.size(), to);
}

TEST(NcuTest, TheCommandLine) {
  const std::vector<std::string> words = ncu_command("/bin/ncu", {"onepass", "profile", "a b"});
  ASSERT_EQ(words.size(), 15u);
  const std::vector<std::string> options(words.begin(), words.begin() + 11);
  EXPECT_EQ(options, (std::vector<std::string>{"/bin/ncu", "--csv", "--page", "raw",
                                               "--print-units", "base", "--clock-control", "none",
                                               "--profile-from-start", "off", "--metrics"}));
  const std::vector<std::string> program(words.begin() + 12, words.end());
  EXPECT_EQ(program, (std::vector<std::string>{"onepass", "profile", "a b"}));
  for (const Metric& metric : ncu_metrics()) {
    EXPECT_NE(words[11].find(metric.name), std::string::npos) << metric.name;
  }
  EXPECT_EQ(std::ranges::count(words[11], ','), std::ssize(ncu_metrics()) - 1);
}

TEST(NcuTest, EveryCounterOfEveryLaunch) {
  const std::vector<Counters> launches = good(kBase);
  ASSERT_EQ(launches.size(), 2u);
  const Counters& first = launches[0];
  EXPECT_EQ(first.launches, 1);
  EXPECT_DOUBLE_EQ(first.duration_us, 30);
  EXPECT_DOUBLE_EQ(first.dram_percent, 80.5);
  EXPECT_DOUBLE_EQ(first.l2_percent, 40.25);
  EXPECT_DOUBLE_EQ(first.l1_percent, 20);
  EXPECT_DOUBLE_EQ(first.sm_percent, 10);
  EXPECT_DOUBLE_EQ(first.occupancy_percent, 90);
  EXPECT_DOUBLE_EQ(first.registers, 32);
  EXPECT_DOUBLE_EQ(first.dram_read_bytes, 67108864);
  EXPECT_DOUBLE_EQ(first.dram_write_bytes, 1024);
}

TEST(NcuTest, LaunchesJoined) {
  const Counters all = joined(good(kBase));
  EXPECT_EQ(all.launches, 2);
  EXPECT_DOUBLE_EQ(all.duration_us, 40);
  EXPECT_DOUBLE_EQ(all.dram_percent, (80.5 * 30 + 50.5 * 10) / 40);
  EXPECT_DOUBLE_EQ(all.l2_percent, (40.25 * 30 + 0.25 * 10) / 40);
  EXPECT_DOUBLE_EQ(all.l1_percent, 30);
  EXPECT_DOUBLE_EQ(all.sm_percent, 20);
  EXPECT_DOUBLE_EQ(all.occupancy_percent, 80);
  EXPECT_DOUBLE_EQ(all.registers, 40);
  EXPECT_DOUBLE_EQ(all.dram_read_bytes, 2 * 67108864);
  EXPECT_DOUBLE_EQ(all.dram_write_bytes, 67108864 + 1024);

  EXPECT_EQ(joined({}).launches, 0);
  EXPECT_TRUE(std::isnan(joined({}).duration_us));
  const std::vector<Counters> timeless = {{.launches = 1, .dram_percent = 10},
                                          {.launches = 1, .dram_percent = 30}};
  EXPECT_DOUBLE_EQ(joined(timeless).dram_percent, 20);
  EXPECT_TRUE(std::isnan(joined(timeless).duration_us));
}

TEST(NcuTest, ScaledUnitsAndMissingColumns) {
  const Counters counters = joined(good(kScaled));
  EXPECT_DOUBLE_EQ(counters.duration_us, 1234.5);
  EXPECT_DOUBLE_EQ(counters.dram_read_bytes, 67.11e6);
  EXPECT_DOUBLE_EQ(counters.dram_write_bytes, 1020);
  for (const double missing :
       {counters.dram_percent, counters.l2_percent, counters.l1_percent, counters.sm_percent,
        counters.occupancy_percent, counters.registers}) {
    EXPECT_TRUE(std::isnan(missing));
  }
}

TEST(NcuTest, EveryUnit) {
  const std::vector<std::pair<std::string, double>> times = {
      {"ns", 1e-3},     {"nsecond", 1e-3}, {"us", 1},       {"usecond", 1}, {"ms", 1e3},
      {"msecond", 1e3}, {"s", 1e6},        {"second", 1e6}, {"", 1e-3}};
  for (const auto& [unit, factor] : times) {
    const std::string text = replaced(kScaled, "usecond", unit);
    EXPECT_DOUBLE_EQ(good(text)[0].duration_us, 1234.5 * factor) << unit;
  }
  const std::vector<std::pair<std::string, double>> sizes = {
      {"byte", 1}, {"Kbyte", 1e3}, {"Mbyte", 1e6}, {"Gbyte", 1e9}, {"", 1}};
  for (const auto& [unit, factor] : sizes) {
    const std::string text = replaced(kScaled, "Mbyte", unit);
    EXPECT_DOUBLE_EQ(good(text)[0].dram_read_bytes, 67.11 * factor) << unit;
  }
  EXPECT_EQ(error_of(replaced(kScaled, "usecond", "fortnight")),
            "ncu: gpu__time_duration.sum is in 'fortnight', an unknown unit");
}

TEST(NcuTest, WhatIsNoNumberWasNotCounted) {
  for (const char* none : {"n/a", "no data", "", "nan", "inf", "-", "12x", "(!) n/a"}) {
    const std::vector<Counters> launches = good(replaced(kBase, "80.5", none));
    EXPECT_TRUE(std::isnan(launches[0].dram_percent)) << none;
    EXPECT_DOUBLE_EQ(launches[0].duration_us, 30) << none;
    EXPECT_TRUE(std::isnan(joined(launches).dram_percent)) << "half of it is not a mean";
  }
}

TEST(NcuTest, TextWithoutLaunches) {
  EXPECT_TRUE(good("").empty());
  EXPECT_TRUE(good("\n\n,,,\n\"\n\"\"\"\n0,1,2\n==WARNING== No kernels were profiled.\n").empty());
  EXPECT_TRUE(good(std::string(10000, '"')).empty());
  EXPECT_TRUE(good(kBase.substr(0, kBase.find("\"0\","))).empty());
}

TEST(NcuTest, CsvOfSomethingElse) {
  EXPECT_EQ(
      error_of(
          "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Value\"\n\"0\",\"k\",\"x\",\"1\"\n"),
      "ncu: its CSV has none of the counters that were asked for");
}

TEST(NcuTest, NoCutLosesALaunchOrMakesUpAValue) {
  const std::size_t second = kBase.find("\"1\",\"4711\"") + 4;
  for (std::size_t length = second; length < kBase.size(); ++length) {
    std::vector<Counters> launches;
    if (!parse_ncu(kBase.substr(0, length), launches).ok()) continue;
    ASSERT_EQ(launches.size(), 2u) << kBase.substr(second, length - second);
    const double value = launches[1].occupancy_percent;
    EXPECT_TRUE(value == 50 || std::isnan(value)) << value;
  }
}

TEST(NcuTest, WindowsLineEnds) {
  std::string text;
  for (const char c : kScaled) text += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_DOUBLE_EQ(good(text)[0].duration_us, 1234.5);
}

// ---- What moved -------------------------------------------------------------------------------

constexpr Counters kStep = {.launches = 1,
                            .duration_us = 100,
                            .dram_percent = 22,
                            .l2_percent = 20,
                            .l1_percent = 30,
                            .sm_percent = 40,
                            .occupancy_percent = 50,
                            .registers = 32,
                            .dram_read_bytes = 67e6,
                            .dram_write_bytes = 67e6};

TEST(NcuTest, TheCounterThatMovedMost) {
  Counters after = kStep;
  EXPECT_EQ(what_moved(kStep, after), "nothing by 3 points");
  after.registers = 64;
  EXPECT_EQ(what_moved(kStep, after), "registers +32 (32 -> 64)");
  after.occupancy_percent = 25;
  EXPECT_EQ(what_moved(kStep, after), "occupancy -25 points (50 -> 25 %)");
  after.sm_percent = 62;
  EXPECT_EQ(what_moved(kStep, after), "SM +22 points (40 -> 62 %)");
  after.l1_percent = 5;
  EXPECT_EQ(what_moved(kStep, after), "L1/TEX -25 points (30 -> 5 %)");
  after.l2_percent = 47;
  EXPECT_EQ(what_moved(kStep, after), "L2 +27 points (20 -> 47 %)");
  after.dram_percent = 53;
  EXPECT_EQ(what_moved(kStep, after), "DRAM +31 points (22 -> 53 %)");
  after.dram_read_bytes = 134e6;
  EXPECT_EQ(what_moved(kStep, after), "DRAM bytes read 2.00x (67 -> 134 MB)");
}

TEST(NcuTest, BytesAreWeighedByTheWholeTraffic) {
  Counters before = kStep, after = kStep;
  before.dram_write_bytes = 1000;  // three times nothing is nothing
  after.dram_write_bytes = 3000;
  EXPECT_EQ(what_moved(before, after), "nothing by 3 points");
  after.dram_write_bytes = 67e6;
  EXPECT_EQ(what_moved(before, after), "DRAM bytes written 0.0 -> 67 MB");
  before.dram_write_bytes = 0;
  EXPECT_EQ(what_moved(before, after), "DRAM bytes written 0.0 -> 67 MB");
  EXPECT_EQ(what_moved(after, before), "DRAM bytes written 67 -> 0.0 MB");
}

TEST(NcuTest, WhatWasNotCountedDidNotMove) {
  Counters after = kStep;
  after.dram_percent = Counters::kNotCounted;
  after.dram_read_bytes = Counters::kNotCounted;
  after.sm_percent = 80;
  EXPECT_EQ(what_moved(kStep, after), "SM +40 points (40 -> 80 %)");
  EXPECT_EQ(what_moved(Counters{}, kStep), "not counted");
  EXPECT_EQ(what_moved(Counters{}, Counters{}), "not counted");
}

TEST(NcuTest, Complaints) {
  EXPECT_EQ(ncu_complaint("==PROF== Connected\n==ERROR== bad\nfree words\n",
                          "onepass: no GPU\n==ERROR== bad\n"),
            "onepass: no GPU\n==ERROR== bad");
  EXPECT_EQ(ncu_complaint("", ""), "");
}

}  // namespace
}  // namespace onepass::cli
