// onepass softmax, log-softmax and logsumexp on arrays of the user, good and bad.
// Not under sanitizers: starts the program, which the subset does not build.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/oracle.hpp"
#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

using std::string_literals::operator""s;

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double error) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], error) << i;
}

using ApplyTest = ProgramTest;

const std::vector<double> kX = {1, 2, 3, 4, -1, 0.5, 2, 8, 0, 0, -3, 1.5};  // [3, 4]

std::vector<double> column(int c) {
  const auto at = static_cast<std::size_t>(c);
  return {kX[at], kX[at + 4], kX[at + 8]};
}

std::vector<double> row(int r) { return {kX.begin() + r * 4, kX.begin() + r * 4 + 4}; }

// op of each of kX's rows.
template <class Function>
std::vector<double> of_rows(Function function, const oracle::Transform& transform = {}) {
  std::vector<double> all;
  for (int r = 0; r < 3; ++r) {
    for (const double v : function(oracle::logits(row(r), transform))) all.push_back(v);
  }
  return all;
}

TEST_F(ApplyTest, EveryDtype) {
  const std::vector<double> expected = of_rows(oracle::softmax);
  write("f4.npy", DType::f32, {3, 4}, kX);
  write("f2.npy", DType::f16, {3, 4}, kX);
  write("f8.npy", DType::f64, {3, 4}, kX);
  write("bf.npy", DType::bf16, {3, 4}, kX);
  EXPECT_EQ(good({"softmax", "f4.npy", "y.npy"}).out, "");
  expect_near(read("y.npy", DType::f32, {3, 4}), expected, 1e-6);
  good({"softmax", "f2.npy", "y.npy"});
  expect_near(read("y.npy", DType::f16, {3, 4}), expected, 1e-3);
  good({"softmax", "f8.npy", "y.npy"});
  expect_near(read("y.npy", DType::f64, {3, 4}), expected, 1e-15);
  good({"softmax", "bf.npy", "y.npy", "--bf16"});
  expect_near(read("y.npy", DType::bf16, {3, 4}), expected, 1e-2);
  good({"softmax", "f2.npy", "y.npy", "--dtype", "f64"});
  expect_near(read("y.npy", DType::f64, {3, 4}), expected, 1e-6);
  good({"softmax", "f8.npy", "y.npy", "--dtype", "bf16"});
  expect_near(read("y.npy", DType::bf16, {3, 4}), expected, 1e-2);
}

TEST_F(ApplyTest, EveryOpAlongEveryAxis) {
  write("x.npy", DType::f64, {3, 4}, kX);
  std::vector<double> weights(12), logs(12), sums;
  for (int c = 0; c < 4; ++c) {
    const oracle::Row y = oracle::softmax(column(c)), z = oracle::log_softmax(column(c));
    for (std::size_t r = 0; r < 3; ++r) {
      weights[r * 4 + static_cast<std::size_t>(c)] = y[r];
      logs[r * 4 + static_cast<std::size_t>(c)] = z[r];
    }
    sums.push_back(oracle::logsumexp(column(c)));
  }
  for (const std::string axis : {"0", "-2"}) {
    good({"softmax", "x.npy", "y.npy", "--axis", axis});
    expect_near(read("y.npy", DType::f64, {3, 4}), weights, 1e-14);
    good({"log-softmax", "x.npy", "y.npy", "--axis", axis});
    expect_near(read("y.npy", DType::f64, {3, 4}), logs, 1e-14);
    good({"logsumexp", "x.npy", "y.npy", "--axis", axis});
    expect_near(read("y.npy", DType::f64, {4}), sums, 1e-14);
  }
  for (const Words& axis : {Words{}, Words{"--axis", "1"}, Words{"--axis=-1"}}) {
    Words words = {"log-softmax", "x.npy", "y.npy"};
    words.insert(words.end(), axis.begin(), axis.end());
    good(words);
    expect_near(read("y.npy", DType::f64, {3, 4}), of_rows(oracle::log_softmax), 1e-14);
  }
}

TEST_F(ApplyTest, Options) {
  write("x.npy", DType::f64, {3, 4}, kX);
  good({"softmax", "x.npy", "y.npy", "--scale", "0.5", "--temperature", "2", "--softcap", "1.5"});
  expect_near(read("y.npy", DType::f64, {3, 4}),
              of_rows(oracle::softmax, {.scale = 0.5, .temperature = 2, .softcap = 1.5}), 1e-14);

  good({"softmax", "x.npy", "y.npy", "--lse", "lse.npy"});
  std::vector<double> sums;
  for (int r = 0; r < 3; ++r) sums.push_back(oracle::logsumexp(row(r)));
  expect_near(read("y.npy", DType::f64, {3, 4}), of_rows(oracle::softmax), 1e-14);
  expect_near(read("lse.npy", DType::f64, {3}), sums, 1e-14);

  // A mask of one row for all; the masked column weighs nothing.
  write("mask.npy", DType::f32, {4}, {0, 1, -std::numeric_limits<double>::infinity(), 0.25});
  good({"softmax", "x.npy", "y.npy", "--mask", "mask.npy"});
  expect_near(read("y.npy", DType::f64, {3, 4}),
              of_rows(oracle::softmax,
                      {.additive = {0, 1, -std::numeric_limits<double>::infinity(), 0.25}}),
              1e-14);

  good({"softmax", "x.npy", "y.npy", "--causal", "--threads", "2", "--variant", "cpu_serial"});
  const std::vector<double> causal = read("y.npy", DType::f64, {3, 4});
  EXPECT_EQ(causal[2], 0);  // query 0 of 3 stands at key 1 of 4
  EXPECT_EQ(causal[3], 0);
  EXPECT_EQ(causal[7], 0);
  EXPECT_GT(causal[11], 0);
  EXPECT_NEAR(causal[0] + causal[1], 1, 1e-14);
}

TEST_F(ApplyTest, ArraysWithFewOrNoElements) {
  write("scalar.npy", DType::f32, {}, {3});
  good({"softmax", "scalar.npy", "y.npy"});
  EXPECT_EQ(read("y.npy", DType::f32, {}), std::vector<double>{1});
  good({"logsumexp", "scalar.npy", "y.npy"});
  EXPECT_EQ(read("y.npy", DType::f32, {}), std::vector<double>{3});
  write("none.npy", DType::f32, {3, 0}, {});
  good({"softmax", "none.npy", "y.npy"});
  read("y.npy", DType::f32, {3, 0});
  good({"logsumexp", "none.npy", "y.npy"});
  for (const double v : read("y.npy", DType::f32, {3})) {
    EXPECT_EQ(v, -std::numeric_limits<double>::infinity());
  }
  good({"logsumexp", "none.npy", "y.npy", "--axis", "0"});
  read("y.npy", DType::f32, {0});
}

// Rows that a header promises, but that have no elements, must not be walked through.
TEST_F(ApplyTest, ManyRowsOfNothing) {
  const std::int64_t shape[] = {0, 9, 9, 9, 9, 9, 9, 1000000000000};
  ASSERT_TRUE(write_npy(path("x.npy"), DType::f32, shape, {}).ok());
  good({"softmax", "x.npy", "y.npy", "--axis", "0"});
}

TEST_F(ApplyTest, TheOutputMayBeTheInput) {
  write("x.npy", DType::f32, {3, 4}, kX);
  good({"softmax", "x.npy", "x.npy"});
  expect_near(read("x.npy", DType::f32, {3, 4}), of_rows(oracle::softmax), 1e-6);
  EXPECT_EQ(names(), std::set<std::string>{"x.npy"});
}

class BadFileTest : public ProgramTest {
 protected:
  BadFileTest() {
    write("x.npy", DType::f32, {3, 4}, kX);
    put(path("old.npy"), "the old result");
    fs::create_directory(path("directory"));
  }

  // Fails with the words, whatever the op, and leaves the old output as it was.
  void refused(const Words& arguments, std::initializer_list<std::string_view> words,
               int exit = kUsage) const {
    for (const std::string op : {"softmax", "log-softmax", "logsumexp"}) {
      Words line = {op};
      line.insert(line.end(), arguments.begin(), arguments.end());
      bad(line, exit, words);
      EXPECT_EQ(get(path("old.npy")), "the old result");
      EXPECT_TRUE(fs::is_empty(path("directory")));
    }
  }

  // A header by hand, and so much data.
  static std::string npy(const std::string& dict, std::size_t data) {
    return "\x93NUMPY\x01"s + '\0' + static_cast<char>(dict.size()) + '\0' + dict +
           std::string(data, 'x');
  }
};

TEST_F(BadFileTest, Inputs) {
  refused({"missing.npy", "old.npy"}, {"missing.npy", "No such file"});
  refused({"directory", "old.npy"}, {"directory"});
  const std::string whole = get(path("x.npy"));
  put(path("in.npy"), whole.substr(0, whole.size() - 5));
  refused({"in.npy", "old.npy"}, {"in.npy", "truncated", "48", "43"});
  put(path("in.npy"), whole.substr(0, 30));
  refused({"in.npy", "old.npy"}, {"in.npy", "truncated"});
  put(path("in.npy"), whole + "more");
  refused({"in.npy", "old.npy"}, {"in.npy", "trailing"});
  put(path("in.npy"), "PK\x03\x04 is not what it should be");
  refused({"in.npy", "old.npy"}, {"in.npy", "not a .npy file"});
  put(path("in.npy"), "");
  refused({"in.npy", "old.npy"}, {"in.npy", "truncated"});
}

TEST_F(BadFileTest, ForgedHeaders) {
  const auto dict = [](const std::string& descr, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  };
  put(path("in.npy"), npy(dict("<f4", "(1000000000000, 1000)"), 64));
  refused({"in.npy", "old.npy"}, {"in.npy", "4000000000000000"});
  put(path("in.npy"), npy(dict("<f4", "(4611686018427387904, 4611686018427387904)"), 64));
  refused({"in.npy", "old.npy"}, {"in.npy", "4611686018427387904"});
  put(path("in.npy"), npy(dict("<f4", "(-4,)"), 64));
  refused({"in.npy", "old.npy"}, {"in.npy", "-4"});
  put(path("in.npy"), npy(dict("<c8", "(8,)"), 64));
  refused({"in.npy", "old.npy"}, {"in.npy", "<c8"});
  for (const std::string descr : {"<i4", ">f4", "|b1"}) {
    put(path("in.npy"), npy(dict(descr, "(8,)"), 32));
    refused({"in.npy", "old.npy"}, {"in.npy: dtype", descr});
  }
  put(path("in.npy"), npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4), }\n", 32));
  refused({"in.npy", "old.npy"}, {"in.npy: fortran_order", "(2, 4)"});
  put(path("in.npy"), npy(dict("<u2", "(32,)"), 64));
  refused({"in.npy", "old.npy"}, {"in.npy", "--bf16"});
  put(path("in.npy"), npy("{'shape': ", 64));
  refused({"in.npy", "old.npy"}, {"in.npy", "header"});
}

TEST_F(BadFileTest, ArgumentsThatDoNotFitTheArray) {
  refused({"x.npy", "old.npy", "--axis", "2"}, {"axis", "2"});
  refused({"x.npy", "old.npy", "--axis", "-3"}, {"axis", "-3"});
  refused({"x.npy", "old.npy", "--dtype", "f12"}, {"f12"});
  refused({"x.npy", "old.npy", "--dtype", "i32"}, {"i32"});
  refused({"x.npy", "old.npy", "--temperature", "0"}, {"temperature", "0"});
  refused({"x.npy", "old.npy", "--temperature", "nan"}, {"temperature", "nan"});
  refused({"x.npy", "old.npy", "--temperature", "warm"}, {"--temperature", "warm"});
  refused({"x.npy", "old.npy", "--scale", "inf"}, {"scale", "inf"});
  refused({"x.npy", "old.npy", "--softcap", "-1"}, {"softcap", "-1"});
  refused({"x.npy", "old.npy", "--variant", "cpu_none"}, {"'cpu_none'", "cpu_row"});
  write("mask.npy", DType::f32, {5}, {0, 0, 0, 0, 0});
  refused({"x.npy", "old.npy", "--mask", "mask.npy"}, {"mask", "[5]", "[3, 4]"});
  refused({"x.npy", "old.npy", "--mask", "missing.npy"}, {"missing.npy"});
  bad({"softmax", "x.npy", "old.npy", "--variant", "cpu_lanes"}, kCannot, {"cpu_lanes"});
  EXPECT_EQ(get(path("old.npy")), "the old result");
}

TEST_F(BadFileTest, OutputsThatCannotBeWritten) {
  for (const std::string target : {"directory", "missing/y.npy", "x.npy/y.npy"}) {
    const std::set<std::string> before = names();
    const Outcome outcome = run({"softmax", "x.npy", target});
    EXPECT_EQ(outcome.exit, kUsage) << target;
    EXPECT_TRUE(contains(outcome.err, target + ": cannot write")) << outcome.err;
    EXPECT_EQ(names(), before);
    EXPECT_TRUE(fs::is_empty(path("directory")));
  }
  const Outcome full = run({"softmax", "x.npy", "/dev/full"});
  EXPECT_EQ(full.exit, kCannot);
  EXPECT_TRUE(contains(full.err, "/dev/full: cannot write: No space left")) << full.err;
  expect_near(read("x.npy", DType::f32, {3, 4}), kX, 0);
}

TEST_F(BadFileTest, AnLseThatCannotBeWritten) {
  const std::set<std::string> before = names();
  const Outcome outcome = run({"softmax", "x.npy", "y.npy", "--lse", "missing/lse.npy"});
  EXPECT_EQ(outcome.exit, kUsage);
  EXPECT_TRUE(contains(outcome.err, "missing/lse.npy")) << outcome.err;
  EXPECT_EQ(names(), before) << "half of the results were left";
}

}  // namespace
}  // namespace onepass::cli
