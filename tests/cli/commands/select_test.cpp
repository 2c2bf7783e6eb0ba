// onepass topk and sample on arrays of the user, good and bad.
// Not under sanitizers: starts the program, which the subset does not build.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"
#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

using ChooseCliTest = ProgramTest;

const std::vector<double> kX = {1, 2, 3, 4, -1, 0.5, 2, 8, 0, 0, -3, 1.5};  // [3, 4]

TEST_F(ChooseCliTest, TopkPrintsWhatItFound) {
  write("x.npy", DType::f32, {3, 4}, kX);
  const auto json =
      nlohmann::json::parse(good({"topk", "x.npy", "--k", "2", "--values", "logit", "--json"}).out);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0]["tokens"], (std::vector<int>{3, 2}));
  EXPECT_EQ(json[1]["values"], (std::vector<double>{8, 2}));
  EXPECT_EQ(json[2]["tokens"], (std::vector<int>{3, 0}));  // of equal ones the lower index
  EXPECT_NE(good({"topk", "x.npy", "--k", "1"}).out.find("probability"), std::string::npos);
}

TEST_F(ChooseCliTest, TopkWritesFiles) {
  write("x.npy", DType::f16, {3, 4}, kX);
  EXPECT_EQ(good({"topk", "x.npy", "--k", "4", "--values", "logit", "--to-values", "v.npy",
                  "--to-indices", "i.npy", "--lse", "l.npy", "--index", "i32"})
                .out,
            "");
  const std::vector<double> values = read("v.npy", DType::f32, {3, 4});
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(values[11], -3);
  EXPECT_NEAR(read("l.npy", DType::f32, {3})[0], 4.4401897, 1e-5);
}

TEST_F(ChooseCliTest, ASampleIsTheSameForTheSameSeed) {
  write("x.npy", DType::f32, {3, 4}, kX);
  const auto draw = [&](const std::string& seed) {
    return good({"sample", "x.npy", "--top-p", "0.95", "--temperature", "5", "--seed", seed}).out;
  };
  EXPECT_EQ(draw("3"), draw("3"));
  bool differs = false;
  for (int seed = 4; seed < 40 && !differs; ++seed)
    differs = draw("3") != draw(std::to_string(seed));
  EXPECT_TRUE(differs);
  const auto json =
      nlohmann::json::parse(good({"sample", "x.npy", "--temperature", "0", "--json"}).out);
  EXPECT_EQ(json[0]["token"], 3);
  EXPECT_EQ(json[1]["token"], 3);
  EXPECT_EQ(json[2]["valid"], true);
}

TEST_F(ChooseCliTest, ASampleIsWrittenToFiles) {
  write("x.npy", DType::f64, {3, 4}, kX);
  EXPECT_EQ(good({"sample", "x.npy", "--temperature", "0", "--to-tokens", "t.npy", "--logprob",
                  "l.npy", "--index", "i32"})
                .out,
            "");
  EXPECT_EQ(names(), (std::set<std::string>{"l.npy", "t.npy", "x.npy"}));
  EXPECT_NEAR(read("l.npy", DType::f64, {3})[0], -0.44018969856119533, 1e-12);
}

TEST_F(ChooseCliTest, ASeedIs64Bits) {
  write("x.npy", DType::f32, {64}, std::vector<double>(64, 1));
  const auto draw = [&](const std::string& flag, const std::string& value) {
    return good({"sample", "x.npy", flag, value}).out;
  };
  for (const std::string flag : {"--seed", "--offset"}) {
    EXPECT_EQ(draw(flag, "18446744073709551615"), draw(flag, "-1"));
    EXPECT_EQ(draw(flag, "9223372036854775808"), draw(flag, "-9223372036854775808"));
    EXPECT_EQ(draw(flag, "0xffffffffffffff00"), draw(flag, "-256"));
    EXPECT_NE(draw(flag, "9223372036854775809"), draw(flag, "9223372036854775807"));
    for (const std::string value : {"18446744073709551616", "-9223372036854775809", "7.0", ""}) {
      bad({"sample", "x.npy", flag, value}, kUsage, {flag.substr(2), value});
    }
  }
}

TEST_F(ChooseCliTest, BadInputIsNamedAndNothingIsWritten) {
  write("x.npy", DType::f32, {3, 4}, kX);
  bad({"topk", "x.npy", "--k", "5", "--to-values", "v.npy"}, kUsage,
      {"k: 5 is not between 1 and the 4"});
  bad({"topk", "x.npy", "--k", "0"}, kUsage, {"k: 0"});
  bad({"topk", "x.npy", "--k", "1", "--values", "odds"}, kUsage,
      {"--values: expected probability|", "got 'odds'"});
  bad({"topk", "x.npy", "--temperature", "row"}, kUsage, {"--temperature: expected FLOAT"});
  bad({"sample", "x.npy", "--top-p", "1.5", "--to-tokens", "t.npy"}, kUsage, {"top_p: 1.5"});
  bad({"sample", "x.npy", "--temperature", "-1"}, kUsage, {"temperature: -1"});
  bad({"sample", "missing.npy"}, kUsage, {"missing.npy"});
}

}  // namespace
}  // namespace onepass::cli
