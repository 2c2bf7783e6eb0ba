// The results schema: what is written can be read, compared line by line, and trusted.
#include "cli/measure/results.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "onepass_build.hpp"

namespace onepass::cli {
namespace {

Results sample() {
  Results results;
  results.environment = {.device = "cpu",
                         .cpu = "Fast \"4\" µ",
                         .isa = "AVX3",
                         .threads = 2,
                         .sm = 0,
                         .driver = "",
                         .cuda = "",
                         .commit = "abc123",
                         .dirty = true,
                         .date = "2025-01-02T03:04:05Z"};
  results.limits = {{"copy_gbps", 23.456789}, {"peak", 1e6}};
  results.rows.push_back({.op = "softmax",
                          .variant = "cpu",
                          .role = "ship",
                          .chosen = true,
                          .problem = "softmax 4096x1024",
                          .dtype = "f32",
                          .shape = {4096, 1024},
                          .threads = 2,
                          .median_us = 1234.5678,
                          .p10_us = 0.00123456,
                          .p90_us = 2000,
                          .bytes = 33554432,
                          .gbps = 27.179,
                          .percent_of_copy = 99.999,
                          .verified = true});
  Row& copy = results.rows.emplace_back();
  copy.op = "softmax";
  copy.variant = "copy";
  copy.median_us = 5;
  copy.percent_of_copy = std::numeric_limits<double>::quiet_NaN();
  return results;
}

constexpr std::string_view kText = R"({
  "schema": 1,
  "environment": {
    "device": "cpu",
    "cpu": "Fast \"4\" µ",
    "isa": "AVX3",
    "threads": 2,
    "sm": 0,
    "driver": "",
    "cuda": "",
    "commit": "abc123",
    "dirty": true,
    "date": "2025-01-02T03:04:05Z"
  },
  "limits": {
    "copy_gbps": 23.46,
    "peak": 1000000.0
  },
  "rows": [
    {"op":"softmax","variant":"cpu","role":"ship","chosen":true,"problem":"softmax 4096x1024","dtype":"f32","shape":[4096,1024],"threads":2,"median_us":1235.0,"p10_us":0.001235,"p90_us":2000.0,"bytes":33554432,"gbps":27.18,"percent_of_copy":100.0,"verified":true},
    {"op":"softmax","variant":"copy","role":"","chosen":false,"problem":"","dtype":"","shape":[],"threads":0,"median_us":5.0,"p10_us":0.0,"p90_us":0.0,"bytes":0,"gbps":0.0,"percent_of_copy":null,"verified":false}
  ]
}
)";

std::string error_of(std::string_view text) {
  Results results;
  results.environment.device = "before";
  const Status status = from_json(text, results);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(results.environment.device, "before") << "a failed read changed its output";
  return status.message();
}

std::string replaced(std::string_view from, std::string_view to) {
  std::string text(kText);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ResultsTest, TextIsStableWithOneRowALine) { EXPECT_EQ(to_json(sample()), kText); }

// Files from before there were rounds stay as they were, and load.
TEST(ResultsTest, RoundsStandInTheirRowAndMayBeMissing) {
  Results results = sample();
  results.rows[1].rounds_us = {4.99912, 5, std::numeric_limits<double>::quiet_NaN()};
  const std::string text = to_json(results);
  EXPECT_EQ(text,
            replaced("\"verified\":false}", "\"verified\":false,\"rounds_us\":[4.999,5.0,null]}"));
  Results again;
  const Status status = from_json(text, again);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(again.rows[0].rounds_us.empty());
  ASSERT_EQ(again.rows[1].rounds_us.size(), 3u);
  EXPECT_EQ(again.rows[1].rounds_us[0], 4.999);
  EXPECT_TRUE(std::isnan(again.rows[1].rounds_us[2]));
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(error_of(replaced("\"verified\":false", "\"verified\":false,\"rounds_us\":[1,\"2\"]")),
            "rows[1].rounds_us[1] is \"2\", expected a number or null");
  EXPECT_EQ(error_of(replaced("\"verified\":false", "\"verified\":false,\"rounds_us\":3")),
            "rows[1].rounds_us is 3, expected an array of numbers");
}

TEST(ResultsTest, EmptyResultsAreStillJson) {
  Results results;
  ASSERT_TRUE(from_json(to_json({}), results).ok());
  EXPECT_TRUE(results.rows.empty());
  EXPECT_TRUE(results.limits.empty());
}

TEST(ResultsTest, ComesBack) {
  Results results;
  const Status status = from_json(kText, results);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(results.environment, sample().environment);
  EXPECT_EQ(results.limits.at("copy_gbps"), 23.46);
  ASSERT_EQ(results.rows.size(), 2u);
  const Row& row = results.rows[0];
  EXPECT_EQ(row.op, "softmax");
  EXPECT_EQ(row.variant, "cpu");
  EXPECT_EQ(row.role, "ship");
  EXPECT_TRUE(row.chosen);
  EXPECT_EQ(row.problem, "softmax 4096x1024");
  EXPECT_EQ(row.dtype, "f32");
  EXPECT_EQ(row.shape, (std::vector<std::int64_t>{4096, 1024}));
  EXPECT_EQ(row.threads, 2);
  EXPECT_EQ(row.median_us, 1235);
  EXPECT_EQ(row.p10_us, 0.001235);
  EXPECT_EQ(row.p90_us, 2000);
  EXPECT_EQ(row.bytes, 33554432);
  EXPECT_EQ(row.gbps, 27.18);
  EXPECT_EQ(row.percent_of_copy, 100);
  EXPECT_TRUE(row.verified);
  EXPECT_TRUE(std::isnan(results.rows[1].percent_of_copy));
  EXPECT_EQ(to_json(results), kText);
}

TEST(ResultsTest, WhatIsNotUtf8DoesNotCostTheMeasurement) {
  Results results = sample();
  results.environment.cpu = "bad \xff name";
  Results again;
  ASSERT_TRUE(from_json(to_json(results), again).ok());
  EXPECT_EQ(again.environment.cpu, "bad \xef\xbf\xbd name");
}

TEST(ResultsTest, UnknownFieldsAreSkipped) {
  Results results;
  EXPECT_TRUE(from_json(replaced("\"sm\": 0", "\"later\": {}, \"sm\": 0"), results).ok());
}

TEST(ResultsTest, AVariantThatWasRenamedIsReadByTodaysName) {
  Results results = sample();
  results.rows[0].op = "attention";
  results.rows[0].variant = "flash_mma";
  Results back;
  ASSERT_TRUE(from_json(to_json(results), back).ok());
  EXPECT_EQ(back.rows[0].variant, "gpu_flash");
  EXPECT_EQ(back.rows[1].variant, "copy");
}

TEST(ResultsTest, EveryMissingFieldIsNamed) {
  using Json = nlohmann::ordered_json;
  const Json whole = Json::parse(kText);
  const auto check = [&](const Json::json_pointer& object, const std::string& place) {
    for (const auto& [key, value] : whole[object].items()) {
      Json without = whole;
      without[object].erase(key);
      EXPECT_EQ(error_of(without.dump()), place + key + " is missing");
    }
  };
  check(Json::json_pointer(""), "");
  check(Json::json_pointer("/environment"), "environment.");
  check(Json::json_pointer("/rows/1"), "rows[1].");
}

TEST(ResultsTest, WrongValuesAreNamedAndShown) {
  EXPECT_EQ(error_of(replaced("\"schema\": 1", "\"schema\": 2")),
            "schema is 2, this program reads 1");
  EXPECT_EQ(error_of(replaced("\"schema\": 1", "\"schema\": \"1\"")),
            "schema is \"1\", expected an integer from 0 to 2147483647");
  EXPECT_EQ(error_of(replaced("\"median_us\":5.0", "\"median_us\":\"5\"")),
            "rows[1].median_us is \"5\", expected a number or null");
  EXPECT_EQ(error_of(replaced("\"threads\": 2", "\"threads\": 2.5")),
            "environment.threads is 2.5, expected an integer from 0 to 2147483647");
  EXPECT_EQ(error_of(replaced("\"threads\": 2", "\"threads\": 4294967298")),
            "environment.threads is 4294967298, expected an integer from 0 to 2147483647");
  EXPECT_EQ(error_of(replaced("4096,1024", "4096,-1")),
            "rows[0].shape[1] is -1, expected an integer from 0 to 9223372036854775807");
  EXPECT_EQ(error_of(replaced("\"shape\":[]", "\"shape\":5")),
            "rows[1].shape is 5, expected an array of integers");
  EXPECT_EQ(error_of(replaced("\"dirty\": true", "\"dirty\": 1")),
            "environment.dirty is 1, expected true or false");
  EXPECT_EQ(error_of(replaced("\"isa\": \"AVX3\"", "\"isa\": null")),
            "environment.isa is null, expected a string");
  EXPECT_EQ(error_of(replaced("23.46", "[]")), "limits.copy_gbps is [], expected a number or null");
  EXPECT_EQ(error_of("[]"), "the file is [], expected an object");
  EXPECT_EQ(error_of(R"({"schema":1,"environment":[],"limits":{},"rows":[]})"),
            "environment is [], expected an object");
  EXPECT_EQ(error_of(replaced("\"shape\":[]", "\"shape\":\"" + std::string(100, 'x') + "\"")),
            "rows[1].shape is string of 102 bytes, expected an array of integers");
}

TEST(ResultsTest, NumbersOutOfRangeAreRefused) {
  EXPECT_NE(error_of(replaced("23.46", "1e400")).find("1e400"), std::string::npos);
  EXPECT_NE(error_of("1e400").find("1e400"), std::string::npos);
}

// An error shows what it found, which takes a call a level.
TEST(ResultsTest, DeepNestingIsRefused) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(error_of(deep), "JSON more than 64 deep is not read");
  EXPECT_EQ(error_of("{\"schema\":" + deep + "}"), "JSON more than 64 deep is not read");
  EXPECT_EQ(error_of("[[[[]]]]"), "the file is [[[[]]]], expected an object");
}

TEST(ResultsTest, EveryTruncationIsAnError) {
  const std::string_view whole = kText.substr(0, kText.size() - 1);  // without its last line break
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_TRUE(error_of(whole.substr(0, length)).starts_with("not JSON: ")) << length;
  }
}

TEST(ResultsTest, SaveAndLoadNameTheFile) {
  std::string directory = testing::TempDir() + "onepass-results-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/r.json";
  ASSERT_TRUE(save(path, sample()).ok());
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), kText);

  Results results;
  ASSERT_TRUE(load(path, results).ok());
  EXPECT_EQ(to_json(results), kText);

  std::ofstream(path) << "{}";
  EXPECT_EQ(load(path, results).message(), path + ": schema is missing");
  EXPECT_EQ(load(directory + "/no.json", results).message(),
            directory + "/no.json: cannot open: No such file or directory");
  EXPECT_EQ(save(directory + "/no/r.json", results).message(),
            directory + "/no/r.json: cannot write: No such file or directory");
  std::filesystem::remove_all(directory);
}

TEST(ResultsTest, CpuModelOfCpuinfo) {
  EXPECT_EQ(
      cpu_model("processor\t: 0\nmodel\t\t: 106\nmodel name\t: Intel(R) Xeon(R) @ 2.90GHz \n"),
      "Intel(R) Xeon(R) @ 2.90GHz");
  const auto arm = [](const std::string& implementer, const std::string& part) {
    return cpu_model("processor\t: 0\nCPU implementer\t: " + implementer +
                     "\nCPU architecture: 8\nCPU part\t: " + part + "\n\nprocessor\t: 1");
  };
  EXPECT_EQ(arm("0x41", "0xd40"), "Neoverse-V1");
  EXPECT_EQ(arm("0x41", "0xd0c"), "Neoverse-N1");
  EXPECT_EQ(arm("0x41", "0xd4f"), "Neoverse-V2");
  EXPECT_EQ(arm("0x61", "0x023"), "Apple M1");
  EXPECT_EQ(arm("0x41", "0xfff"), "implementer 0x41 part 0xfff");
  EXPECT_EQ(cpu_model(""), "unknown");
  EXPECT_EQ(cpu_model("model name\t:\n:\nmodel name"), "unknown");
}

TEST(ResultsTest, EnvironmentOfThisMachine) {
  const Environment environment = detect_environment("AVX3", 3);
  EXPECT_EQ(environment.device, "cpu");
  EXPECT_FALSE(environment.cpu.empty());
  EXPECT_EQ(environment.isa, "AVX3");
  EXPECT_EQ(environment.threads, 3);
  EXPECT_EQ(environment.sm, 0);
  EXPECT_EQ(environment.driver, "");
  EXPECT_EQ(environment.cuda, "");
  EXPECT_EQ(environment.commit, build::kCommit);
  EXPECT_EQ(environment.dirty, build::kDirty);

  std::tm date{};
  const char* end = ::strptime(environment.date.c_str(), "%Y-%m-%dT%H:%M:%SZ", &date);
  ASSERT_TRUE(end != nullptr && *end == '\0') << environment.date;
  EXPECT_NEAR(std::difftime(std::time(nullptr), ::timegm(&date)), 0, 60) << environment.date;
}

}  // namespace
}  // namespace onepass::cli
