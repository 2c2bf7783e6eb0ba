// Problem strings: what is printed is what is parsed, and every mistake has its sentence.
#include "cli/problem/case.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "cli/problem/options.hpp"
#include "tests/support/cases.hpp"

namespace onepass::cli {

void showValue(const Case& c, std::ostream& out) { out << to_string(c); }  // for a counterexample

namespace {

// Any case that a string can say: a number of its own for some options, an example of some others.
rc::Gen<Case> any_case() {
  const auto number =
      rc::gen::oneOf(rc::gen::arbitrary<double>(),
                     rc::gen::map(rc::gen::inRange(-1000, 1000), [](int k) { return k / 100.0; }));
  return rc::gen::exec([number] {
    Case c{.op = *rc::gen::elementOf(kRowOps), .shape = *any_shape(kMaxRank, 40)};
    if (*seldom()) c.shape[0] = 0;
    const int rank = static_cast<int>(c.shape.size());
    c.in = *rc::gen::elementOf(kFloating);
    c.out = *mostly(c.in, rc::gen::elementOf(kFloating));
    for (double Case::*each : {&Case::scale, &Case::temperature, &Case::softcap, &Case::z_loss}) {
      if (*seldom()) c.*each = *number;
    }
    for (const OptionRow& option : options()) {
      if (option.key == "variant" || option.key == "device" || !*seldom()) continue;
      const std::vector<std::string> examples = words_of(option.examples);
      const std::string value = examples.empty() ? "" : *rc::gen::elementOf(examples);
      if (option.per_row != nullptr && value == "row") {
        c.*option.per_row = true;
      } else {
        RC_ASSERT(option.read(value, c));
      }
    }
    if (c.scale_rows) c.scale = 1;
    if (c.temperature_rows) c.temperature = 1;
    c.axis = *rc::gen::inRange(-rank, rank);
    c.seed = *rc::gen::oneOf(rc::gen::just(c.seed), rc::gen::arbitrary<std::uint64_t>());
    return c;
  });
}

RC_GTEST_PROP(CaseTest, WhatIsPrintedIsWhatIsParsed, ()) {
  const Case c = *any_case();
  Case back;
  const Status status = parse_case(to_string(c), back);
  RC_ASSERT(status.message() == "");
  RC_ASSERT(back == c);
  RC_ASSERT(to_string(back) == to_string(c));
}

RC_GTEST_PROP(CaseTest, WordsMayComeInAnyOrder, (std::uint64_t seed)) {
  const Case c = *any_case();
  std::istringstream text(to_string(c));
  std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  std::shuffle(words.begin(), words.end(), std::mt19937_64(seed));
  std::string shuffled = "\t";
  for (const std::string& word : words) shuffled += word + "  ";
  RC_ASSERT(parsed(shuffled) == c);
}

TEST(CaseTest, TheExampleOfTheHeader) {
  const Case c =
      parsed("softmax 4096x4096 f16:f32 axis=0 temperature=row mask=causal+lengths lse seed=7");
  EXPECT_EQ(c, (Case{.op = Op::softmax,
                     .shape = {4096, 4096},
                     .in = DType::f16,
                     .out = DType::f32,
                     .axis = 0,
                     .temperature_rows = true,
                     .lengths = true,
                     .causal = true,
                     .lse = true,
                     .seed = 7}));
}

TEST(CaseTest, EveryWordOnce) {
  const std::string text =
      "cross_entropy 2x3x4 bf16:f64 axis=1 scale=0.125 temperature=2 softcap=30 "
      "mask=additive+boolean+lengths+causal broadcast window=3,0 lse smoothing=0.1 z_loss=0.0001 "
      "ignore weights probabilities reduction=mean in_place pad=5 step=2 offset=3 variant=cpu_row "
      "isa=NEON threads=2 "
      "fill=nan seed=18446744073709551615";
  EXPECT_EQ(to_string(parsed(text)), text);
  EXPECT_EQ(to_string(parsed("softmax 4x4 scale=row reduction=sum")),
            "softmax 4x4 f32 scale=row reduction=sum");
  EXPECT_EQ(to_string(parsed("7")), "softmax 7 f32");
  EXPECT_EQ(to_string(parsed("0x0 f64")), "softmax 0x0 f64");
}

TEST(CaseTest, AnOpLeftOutIsTheCallers) {
  Case c{.op = Op::logsumexp};
  ASSERT_TRUE(parse_case("8x8", c).ok());
  EXPECT_EQ(c.op, Op::logsumexp);
  ASSERT_TRUE(parse_case("log_softmax 8x8", c).ok());
  EXPECT_EQ(c.op, Op::log_softmax);
}

TEST(CaseTest, RowsAndColsOfAnyAxis) {
  const auto sizes = [](std::string_view text) {
    const Case c = parsed(text);
    return std::array{c.axis_index(), c.rows(), c.cols()};
  };
  using Sizes = std::array<std::int64_t, 3>;
  EXPECT_EQ(sizes("2x3x5"), (Sizes{2, 6, 5}));
  EXPECT_EQ(sizes("2x3x5 axis=1"), (Sizes{1, 10, 3}));
  EXPECT_EQ(sizes("2x3x5 axis=-3"), (Sizes{0, 15, 2}));
  EXPECT_EQ(sizes("9"), (Sizes{0, 1, 9}));
  EXPECT_EQ(sizes("0x9"), (Sizes{1, 0, 9}));
}

struct Mistake {
  std::string text;
  std::string message;
};

void expect_mistakes(std::initializer_list<Mistake> mistakes) {
  for (const Mistake& mistake : mistakes) {
    const Case before{.op = Op::logsumexp, .shape = {3, 3}, .seed = 99};
    Case c = before;
    const Status status = parse_case(mistake.text, c);
    EXPECT_EQ(status.code(), Code::invalid_argument) << mistake.text;
    EXPECT_EQ(status.message(), mistake.message);
    EXPECT_EQ(c, before) << mistake.text << ": half parsed";
  }
}

TEST(CaseMistakeTest, Words) {
  expect_mistakes({{"4x4 softmux",
                    "problem: 'softmux' is no op, shape, dtype, flag or key=value (did you mean "
                    "'softmax'?)"}});
  for (const std::string word : {"quux", "-3", "LSE", "int8", "f8:f32", "x4", "lse,ignore"}) {
    expect_mistakes(
        {{"4x4 " + word, "problem: '" + word + "' is no op, shape, dtype, flag or key=value"}});
  }
  expect_mistakes({{"4x4 f32:f8", "dtype: 'f8' is not one of f32, f16, bf16, f64"},
                   {"4x4 f32:", "dtype: '' is not one of f32, f16, bf16, f64"},
                   {"4x4 f32:f16:f16", "dtype: 'f16:f16' is not one of f32, f16, bf16, f64"},
                   {"4x4 colour=red", "problem: unknown key in 'colour=red'"},
                   {"4x4 =1", "problem: unknown key in '=1'"}});
}

// Or the first would still be there where the second says "row", and not be printed.
TEST(CaseMistakeTest, Repetitions) {
  expect_mistakes({{"4x4 scale=2 scale=row", "problem: 'scale=row' gives the scale a second time"},
                   {"softmax 4x4 topk", "problem: 'topk' gives the op a second time"},
                   {"4x4 f32 5x5", "problem: '5x5' gives the shape a second time"},
                   {"4x4 f32 bf16", "problem: 'bf16' gives the dtype a second time"},
                   {"4x4 lse lse", "problem: 'lse' gives the lse a second time"}});
}

TEST(CaseMistakeTest, Shapes) {
  expect_mistakes(
      {{"softmax f32", "problem: 'softmax f32' has no shape such as 4096x4096"},
       {"", "problem: '' has no shape such as 4096x4096"},
       {"4x", "problem: bad shape '4x'"},
       {"4xx4", "problem: bad shape '4xx4'"},
       {"4x4y", "problem: bad shape '4x4y'"},
       {"4X4", "problem: bad shape '4X4'"},
       {"4.5x4", "problem: bad shape '4.5x4'"},
       {"9223372036854775808", "problem: bad shape '9223372036854775808'"},
       {"4x-4", "problem: shape 4x-4 is negative or too large"},
       {"4294967296x4294967296", "problem: shape 4294967296x4294967296 is negative or too large"},
       {"3x3037000500x3037000500x1",
        "problem: shape 3x3037000500x3037000500x1 is negative or too large"},
       {"1x1x1x1x1x1x1x1x1", "problem: a shape of 9 dimensions, at most 8 go"},
       {"4x4 axis=2", "problem: axis 2 is outside a shape of 2 dimensions"},
       {"4x4 axis=-3", "problem: axis -3 is outside a shape of 2 dimensions"}});
}

// Strides are made of them: what one is alone says little.
TEST(CaseMistakeTest, ArraysThatSpanMoreThanIntegersCount) {
  for (const std::string text :
       {"4x4 pad=9223372036854775807", "4x4 step=4611686018427387904",
        "4x4 offset=9223372036854775807", "4x4 out_offset=9223372036854775807",
        "topk 4x4 k=9223372036854775807", "attention 2x4x1x64 keys=9223372036854775807",
        "attention 2x4x1x64 keys=9 page=9223372036854775807",
        "attention 2x4x1x64 keys=9 pad=9223372036854775807",
        "attention 2x0x1x64 keys=9 kv_heads=9223372036854775807"}) {
    expect_mistakes({{text, "problem: '" + text + "' spans more elements than 2^62"}});
  }
}

TEST(CaseMistakeTest, Values) {
  for (const std::string word : {"axis=x",
                                 "axis=",
                                 "axis=1.5",
                                 "axis=99999999999",
                                 "scale=",
                                 "scale=two",
                                 "scale=1,5",
                                 "temperature=rows",
                                 "softcap=high",
                                 "mask=",
                                 "mask=causal+",
                                 "mask=diagonal",
                                 "mask=causal,lengths",
                                 "window=3",
                                 "window=,",
                                 "window=3,x",
                                 "window=-2,3",
                                 "window=3,-2",
                                 "smoothing=s",
                                 "z_loss=",
                                 "reduction=max",
                                 "pad=-1",
                                 "pad=x",
                                 "step=0",
                                 "step=-1",
                                 "offset=-1",
                                 "threads=-1",
                                 "threads=two",
                                 "threads=99999999999",
                                 "seed=-9223372036854775809",
                                 "seed=18446744073709551616",
                                 "fill=",
                                 "variant=",
                                 "isa="}) {
    expect_mistakes({{"4x4 " + word, "problem: bad value in '" + word + "'"}});
  }
}

}  // namespace
}  // namespace onepass::cli
