// The table of options: each row reads and prints its own.
#include "cli/problem/options.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/cases.hpp"

namespace onepass::cli {
namespace {

// Each option by itself, in each of its examples: said, printed under its own key, and read again.
TEST(OptionsTest, EveryOptionIsReadAndPrintedByItsRow) {
  for (const std::string problem : {"softmax 4x5 f32", "attention 2x4x5x8 f16:f32"}) {
    for (const OptionRow& option : options()) {
      const std::string key(option.key);
      std::vector<std::string> said;
      for (const std::string& value : words_of(option.examples)) said.push_back(key + "=" + value);
      if (option.is_flag) said.push_back(key);
      ASSERT_FALSE(said.empty()) << key;
      for (const std::string& word : said) {
        Case c;
        if (!parse_case(problem + " " + word, c).ok()) {
          EXPECT_TRUE(problem.starts_with("attention")) << word;
          continue;
        }
        const std::string printed = to_string(c);
        const bool as_mask = option.is_flag && (key == "causal" || key == "lengths");
        EXPECT_TRUE((printed + " ")
                        .find(as_mask          ? " mask=" + key + " "
                              : option.is_flag ? " " + key + " "
                                               : " " + key + "=") != std::string::npos)
            << word << ": " << printed;
        EXPECT_EQ(parsed(printed), c) << printed;
        EXPECT_EQ(to_string(parsed(printed)), printed);
        const Case usual = usual_case(c);
        EXPECT_NE(c, usual) << word;
        EXPECT_EQ(to_string(usual), problem);
      }
    }
  }
}

TEST(OptionsTest, NoOptionHasTwoRows) {
  std::set<std::string_view> keys;
  for (const OptionRow& option : options()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_EQ(option.form == nullptr, option.is_flag) << option.key;
  }
}

}  // namespace
}  // namespace onepass::cli
