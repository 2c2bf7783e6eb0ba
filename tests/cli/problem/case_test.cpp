// Problem strings: what is printed is what is parsed, every mistake has its sentence, and the
// dispatcher is told the same by a string as by the call it stands for.
#include "cli/problem/case.hpp"
#include "dispatch/machines.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "cli/ops/call.hpp"
#include "cli/problem/options.hpp"
#include "dispatch/choose.hpp"
#include "runtime/host.hpp"
#include "tests/support/problem.hpp"

namespace onepass::cli {

void showValue(const Case& c, std::ostream& out) { out << to_string(c); }  // for a counterexample

namespace {

constexpr std::array kFloating = {DType::f32, DType::f16, DType::bf16, DType::f64};

rc::Gen<bool> seldom() {
  return rc::gen::map(rc::gen::inRange(0, 4), [](int k) { return k == 0; });
}

// `usual` more often than not.
template <class T>
rc::Gen<T> mostly(T usual, rc::Gen<T> other) {
  return rc::gen::weightedOneOf<T>({{3, rc::gen::just(usual)}, {1, std::move(other)}});
}

rc::Gen<std::vector<std::int64_t>> any_shape(int most_dimensions, int most) {
  return rc::gen::mapcat(rc::gen::inRange(1, most_dimensions + 1), [most](int rank) {
    return rc::gen::container<std::vector<std::int64_t>>(
        static_cast<std::size_t>(rank),
        rc::gen::oneOf(rc::gen::just<std::int64_t>(1), rc::gen::inRange<std::int64_t>(1, most)));
  });
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

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
      RC_ASSERT(option.read(examples.empty() ? "" : *rc::gen::elementOf(examples), c));
    }
    if (c.scale_rows) c.scale = 1;
    if (c.temperature_rows) c.temperature = 1;
    c.axis = *rc::gen::inRange(-rank, rank);
    c.seed = *rc::gen::oneOf(rc::gen::just(c.seed), rc::gen::arbitrary<std::uint64_t>());
    return c;
  });
}

Case parsed(std::string_view text) {
  Case c;
  const Status status = parse_case(text, c);
  EXPECT_TRUE(status.ok()) << text << ": " << status.message();
  return c;
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

// Each option by itself, in each of its examples: said, printed under its own key, and read again.
TEST(CaseTest, EveryOptionIsReadAndPrintedByItsRow) {
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

TEST(CaseTest, NoOptionHasTwoRows) {
  std::set<std::pair<std::string_view, bool>> keys;
  for (const OptionRow& option : options()) {
    EXPECT_TRUE(keys.emplace(option.key, option.is_flag).second) << option.key;
  }
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

// A file that is gone when the test is.
class Workload {
 public:
  explicit Workload(const std::string& text)
      : path_(testing::TempDir() + "onepass_case_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt") {
    std::ofstream(path_) << text;
  }
  ~Workload() { std::remove(path_.c_str()); }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(WorkloadTest, CommentsBlanksAndTheDefaultOp) {
  const Workload file(
      "# a comment\n"
      "\n"
      "4x4 f16   # and one behind a case\n"
      " \t \r\n"
      "softmax 8x8\r\n"
      "#softmax 9x9\n"
      "1x1");  // no newline at the end
  std::vector<Case> cases;
  ASSERT_TRUE(read_workload(file.path(), Op::logsumexp, cases).ok());
  ASSERT_EQ(cases.size(), 3U);
  EXPECT_EQ(to_string(cases[0]), "logsumexp 4x4 f16");
  EXPECT_EQ(to_string(cases[1]), "softmax 8x8 f32");
  EXPECT_EQ(to_string(cases[2]), "logsumexp 1x1 f32");
}

TEST(WorkloadTest, AMistakeIsFoundByFileAndLine) {
  const Workload file("# one\n4x4\n\nsoftmax 4x\n5x5\n");
  std::vector<Case> cases;
  const Status status = read_workload(file.path(), Op::softmax, cases);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "workload: " + file.path() + ":4: problem: bad shape '4x'");
}

TEST(WorkloadTest, WhatCannotBeReadIsNamed) {
  std::vector<Case> cases;
  const std::string missing = testing::TempDir() + "onepass_no_such_file.txt";
  const Status status = read_workload(missing, Op::softmax, cases);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "workload: " + missing + ": cannot open: No such file or directory");
  const Status folder = read_workload(testing::TempDir(), Op::softmax, cases);
  EXPECT_EQ(folder.message(), "workload: " + testing::TempDir() + ": cannot read: Is a directory");
  EXPECT_TRUE(cases.empty());
}

TEST(WorkloadTest, TheFilesOfThisRepositoryParse) {
  for (const char* name : {"demo.txt", "perf_softmax_cpu.txt"}) {
    std::vector<Case> cases;
    const Status status =
        read_workload(std::string(ONEPASS_SOURCE_DIR "/workloads/") + name, Op::softmax, cases);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_GE(cases.size(), 5U) << name;
  }
}

TEST(WorkloadTest, EveryOptionOfAGpuHasAPlan) {
  std::vector<Case> cases;
  const Status status =
      read_workload(ONEPASS_SOURCE_DIR "/workloads/perf_options.txt", Op::softmax, cases);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(cases.size(), 44U);
  for (const Case& c : cases) {
    EXPECT_EQ(name(c.device), "cuda") << to_string(c);
    EXPECT_TRUE(choose(problem_of(c), *find_machine("h200"))) << to_string(c);
  }
}

// What the library plans when the case is run, beside what its string says it would.
std::string planned_otherwise(const Case& c) {
  Call call;
  if (Status made = call.make(c); !made.ok()) return "make: " + made.message();
  EXPECT_TRUE(call.reset().ok());
  Plan ran;
  if (Status status = call.run(Context::cpu(c.threads), c.variant, &ran); !status.ok()) {
    return "run: " + status.message();
  }
  const Plan expected = choose(problem_of(c), this_host(c.threads)).plan();
  if (ran == expected) return {};
  return to_string(c) + ": ran " + to_string(ran) + ", the string says " + to_string(expected);
}

TEST(ProblemOfTest, SaysWhatTheLibraryFindsOut) {
  for (const std::string_view text : {"softmax 40x64",
                                      "softmax 40x64 f16:f32",
                                      "softmax 40x64 f64",
                                      "softmax 40x64 step=2",
                                      "softmax 40x64 pad=3 offset=1",
                                      "softmax 40x64 axis=0",
                                      "softmax 40x64 axis=0 step=2",
                                      "softmax 40x64 axis=0 pad=7",
                                      "softmax 5x6x7 axis=1",
                                      "softmax 5x6x7 axis=0",
                                      "softmax 5x6x1 axis=1",
                                      "softmax 5x6x1 axis=0",
                                      "softmax 6x1x1 axis=0",
                                      "softmax 6x1x1 axis=0 pad=2",
                                      "softmax 1x6x5 axis=1",
                                      "softmax 6x1 axis=1",
                                      "softmax 1x64 axis=0",
                                      "softmax 64",
                                      "softmax 64 step=3",
                                      "softmax 40x64 in_place",
                                      "softmax 40x64 lse",
                                      "softmax 40x64 scale=2",
                                      "softmax 40x64 scale=row",
                                      "softmax 40x64 temperature=2",
                                      "softmax 40x64 temperature=row",
                                      "softmax 40x64 softcap=9",
                                      "softmax 40x64 mask=additive",
                                      "softmax 40x64 mask=boolean broadcast",
                                      "softmax 40x64 mask=lengths",
                                      "softmax 40x64 mask=causal",
                                      "softmax 40x64 window=4,-1",
                                      "softmax 40x64 window=-1,0",
                                      "softmax 40x64 axis=0 mask=causal",
                                      "softmax 40x64 axis=0 lse",
                                      "softmax 1x40000 threads=2",
                                      "softmax 0x5",
                                      "softmax 5x0",
                                      "log_softmax 40x64 axis=0",
                                      "log_softmax 40x64",
                                      "logsumexp 40x64 axis=0",
                                      "logsumexp 40x64 f64:f16",
                                      "softmax_backward 40x64",
                                      "softmax_backward 40x64 softcap=3",
                                      "log_softmax_backward 40x64 axis=0",
                                      "cross_entropy 40x64 lse",
                                      "cross_entropy 40x64 reduction=mean ignore",
                                      "cross_entropy_backward 40x64 lse",
                                      "cross_entropy_backward 40x64 in_place smoothing=0.1"}) {
    EXPECT_EQ(planned_otherwise(parsed(text)), "");
  }
}

// Rows worth cutting, and outputs large enough to be streamed where that pays.
TEST(ProblemOfTest, SaysWhatTheLibraryFindsOutForLargeOnesSlow) {
  for (const std::string_view text :
       {"softmax 9x8000 threads=4", "softmax 1x40000 threads=1", "softmax 2x40000 threads=3 bf16",
        "cross_entropy 1x40000 threads=2", "softmax_backward 1x40000 threads=2 in_place",
        "softmax 1400x1000", "softmax 1400x1000 in_place", "softmax 1400x1000 step=2",
        "softmax_backward 700x2000 f16:f32", "cross_entropy_backward 1400x1000 reduction=sum"}) {
    EXPECT_EQ(planned_otherwise(parsed(text)), "");
  }
}

RC_GTEST_PROP(ProblemOfTest, SaysWhatTheLibraryFindsOutForAnyLayout, ()) {
  Case c{.op = *mostly(Op::softmax, rc::gen::elementOf(kRowOps)), .shape = *any_shape(4, 9)};
  const int rank = static_cast<int>(c.shape.size());
  c.axis = *rc::gen::inRange(-rank, rank);
  c.in = *rc::gen::elementOf(kFloating);
  c.out = *mostly(c.in, rc::gen::elementOf(kFloating));
  if (*seldom()) {  // without options layouts decide
    c.scale = *mostly(1.0, rc::gen::just(0.5));
    c.temperature_rows = *seldom();
    c.additive = *seldom();
    c.causal = *seldom();
    c.window_right = *mostly<std::int64_t>(-1, rc::gen::just<std::int64_t>(2));
    c.lse = c.op != Op::logsumexp && *seldom();
  }
  const bool per_row = c.op == Op::logsumexp || c.op == Op::cross_entropy;
  c.in_place = !per_row && c.in == c.out && *seldom();
  c.pad = *mostly<std::int64_t>(0, rc::gen::just<std::int64_t>(3));
  c.step = *mostly<std::int64_t>(1, rc::gen::just<std::int64_t>(2));
  c.offset = *mostly<std::int64_t>(0, rc::gen::just<std::int64_t>(1));
  c.threads = *rc::gen::inRange(0, 4);
  const std::string otherwise = planned_otherwise(c);
  if (!otherwise.empty()) RC_FAIL(otherwise);
}

}  // namespace
}  // namespace onepass::cli
