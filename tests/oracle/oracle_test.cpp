// Who checks the checker: the oracle against values by hand, brute force with more digits, and
// derivatives by finite differences.
#include "oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// On machines whose long double is double this loses its point, and still must hold.
constexpr double kClose = 1e-14;

void expect_near(const Row& got, const Row& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], tolerance) << "at " << i;
  }
}

void expect_all(const Row& row, double value, std::size_t size) {
  ASSERT_EQ(row.size(), size);
  for (const double v : row) EXPECT_TRUE(std::isnan(value) ? std::isnan(v) : v == value) << v;
}

Row random_row(std::size_t size, unsigned seed, double spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, spread);
  Row row(size);
  for (double& v : row) v = normal(random);
  return row;
}

TEST(OracleSumTest, KeepsWhatPlainAdditionLoses) {
  EXPECT_EQ(sum({1e16, 1, -1e16}), 1);
  EXPECT_EQ(sum({1, 1e16, -1e16}), 1);
  EXPECT_EQ(sum({1e16, -1e16, 1}), 1);
  EXPECT_EQ(sum({1, 1e100, 1, -1e100}), 2);
  EXPECT_EQ(sum(Row(10, 0.1)), 1);
  Row many(1 << 20, 0x1p-53);
  many[0] = 1;
  EXPECT_EQ(sum(many), 1 + ((1 << 20) - 1) * 0x1p-53);
}

TEST(OracleSumTest, NothingInfAndNan) {
  EXPECT_EQ(sum({}), 0);
  EXPECT_EQ(sum({kInf, 1}), kInf);
  EXPECT_EQ(sum({1, -kInf, 2}), -kInf);
  EXPECT_TRUE(std::isnan(sum({kInf, -kInf})));
  EXPECT_TRUE(std::isnan(sum({1, kNan, 2})));
}

TEST(OracleTest, ByHand) {
  const double log2 = std::log(2.0);
  const double log3 = std::log(3.0);
  const Row z = {0, log2, log3};  // weights 1 : 2 : 3
  expect_near(softmax(z), {1 / 6.0, 2 / 6.0, 3 / 6.0}, kClose);
  EXPECT_NEAR(logsumexp(z), std::log(6.0), kClose);
  expect_near(log_softmax(z), {-std::log(6.0), -log3, -log2}, kClose);
  EXPECT_NEAR(cross_entropy(z, {.target = 1}), log3, kClose);
  EXPECT_NEAR(cross_entropy(z, {.target = 1, .z_loss = 0.5}),
              log3 + 0.5 * std::log(6.0) * std::log(6.0), kClose);
  // Smoothing 0.3: 0.7 on the target, 0.1 on each of the three.
  EXPECT_NEAR(cross_entropy(z, {.target = 0, .label_smoothing = 0.3}),
              0.8 * std::log(6.0) + 0.1 * log3 + 0.1 * log2, kClose);
  EXPECT_NEAR(cross_entropy(z, {.target = 1, .weight = {7, 0.5, 7}}), 0.5 * log3, kClose);
  EXPECT_NEAR(cross_entropy(z, {.target = 0, .label_smoothing = 0.3, .weight = {2, 0, 5}}),
              1.6 * std::log(6.0) + 0.5 * log2, kClose);
  EXPECT_NEAR(cross_entropy(z, {.probabilities = {0.5, 0, 0.25}}),
              0.5 * std::log(6.0) + 0.25 * log2, kClose);
  EXPECT_NEAR(
      cross_entropy(z, {.label_smoothing = 0.3, .weight = {1, 4, 0}, .probabilities = {0, 1, 1}}),
      0.1 * std::log(6.0) + 3.2 * log3, kClose);
}

TEST(OracleTest, AHiddenClassCountsWhereItsLabelIsNotZero) {
  const Row z = {0, -kInf, 0};
  const double log2 = std::log(2.0);
  EXPECT_EQ(cross_entropy(z, {.target = 1}), kInf);
  EXPECT_EQ(cross_entropy(z, {.target = 1, .weight = {1, 0, 1}}), 0);
  EXPECT_EQ(cross_entropy(z, {.probabilities = {0.5, 0.25, 0.25}}), kInf);
  EXPECT_NEAR(cross_entropy(z, {.probabilities = {0.5, 0, 0.25}}), 0.75 * log2, kClose);
  EXPECT_NEAR(cross_entropy(z, {.label_smoothing = 1, .probabilities = {0, 0.5, 0}}), log2, kClose);
}

TEST(OracleTest, BackwardByHand) {
  const Row y = {0.25, 0.75};
  // J = diag(y) − y·yᵀ = ±3/16.
  expect_near(softmax_backward(y, {1, 0}, {}, {}), {0.1875, -0.1875}, kClose);
  expect_near(softmax_backward(y, {0, 4}, {}, {}), {-0.75, 0.75}, kClose);
  expect_near(softmax_backward(y, {0, 4}, {}, {.scale = 3, .temperature = 2}), {-1.125, 1.125},
              kClose);
  const Row log_y = {std::log(0.25), std::log(0.75)};
  expect_near(log_softmax_backward(log_y, {1, 1}, {}, {}), {0.5, -0.5}, kClose);
  const Row x = {0, std::log(3.0)};
  expect_near(cross_entropy_backward(x, {}, {.target = 1}, 2), {0.5, -0.5}, kClose);
  expect_near(cross_entropy_backward(x, {}, {.target = 0, .label_smoothing = 0.5}, 1),
              {0.25 - 0.5 - 0.25, 0.75 - 0.25}, kClose);
}

TEST(OracleTest, LogitsByHand) {
  const Transform t{.scale = 2, .temperature = 4, .softcap = 10, .additive = {1, -kInf, 0.5, 0}};
  const Row z = logits({5, 1, -5, 0}, t);
  EXPECT_NEAR(z[0], 10 * std::tanh(1.0) / 4 + 1, kClose);
  EXPECT_EQ(z[1], -kInf);
  EXPECT_NEAR(z[2], -10 * std::tanh(1.0) / 4 + 0.5, kClose);
  EXPECT_EQ(z[3], 0);
  const Row hidden = logits({kNan, 7, kInf}, {.keep = {false, true, false}});
  EXPECT_EQ(hidden, (Row{-kInf, 7, -kInf}));  // what is hidden does not matter, not even a NaN
  EXPECT_EQ(logits({1, 2}, {}), (Row{1, 2}));
}

TEST(OracleTest, AgainstBruteForceInLongDouble) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Row z = random_row(1 + seed % 17, seed, seed % 2 == 0 ? 1 : 20);
    long double d = 0;
    for (const double v : z) d += std::exp(static_cast<long double>(v));
    const Row y = softmax(z);
    const Row log_y = log_softmax(z);
    EXPECT_NEAR(logsumexp(z), static_cast<double>(std::log(d)), 1e-13);
    for (std::size_t c = 0; c < z.size(); ++c) {
      const long double exact = std::exp(static_cast<long double>(z[c])) / d;
      EXPECT_NEAR(y[c] / static_cast<double>(exact), 1, kClose);
      EXPECT_NEAR(log_y[c], static_cast<double>(z[c] - std::log(d)), 1e-13);
    }
    EXPECT_NEAR(sum(y), 1, kClose);
  }
}

TEST(OracleTest, LargeOffsetsAndExtremesStayFinite) {
  expect_near(softmax({1e6, 1e6 + std::log(3.0)}), {0.25, 0.75}, 1e-9);
  EXPECT_EQ(softmax({1.7e308, -1.7e308}), (Row{1, 0}));
  EXPECT_EQ(logsumexp({1.7e308, -1.7e308}), 1.7e308);
  EXPECT_EQ(log_softmax({3e38, -3e38}), (Row{0, -6e38}));
}

TEST(OracleTest, NothingLeftNanAndInf) {
  const Row none(3, -kInf);
  expect_all(softmax(none), 0, 3);
  expect_all(log_softmax(none), -kInf, 3);
  EXPECT_EQ(logsumexp(none), -kInf);
  EXPECT_EQ(cross_entropy(none, {.target = 1}), kInf);
  EXPECT_EQ(cross_entropy(none, {.target = 1, .label_smoothing = 0.1, .z_loss = 0.1}), kInf);
  EXPECT_EQ(logsumexp({}), -kInf);
  EXPECT_TRUE(softmax({}).empty());
  EXPECT_TRUE(log_softmax({}).empty());

  expect_all(softmax({1, kNan, -kInf}), kNan, 3);
  expect_all(log_softmax({kNan, 1, 2}), kNan, 3);
  EXPECT_TRUE(std::isnan(logsumexp({1, kNan})));
  EXPECT_TRUE(std::isnan(logsumexp({kInf, kNan})));
  expect_all(softmax({1, kInf}), kNan, 2);
  expect_all(log_softmax({1, kInf}), kNan, 2);
  EXPECT_EQ(logsumexp({1, kInf, -kInf}), kInf);

  EXPECT_EQ(softmax({-kInf, 5, -kInf}), (Row{0, 1, 0}));
  EXPECT_EQ(log_softmax({-kInf, 5, -kInf}), (Row{-kInf, 0, -kInf}));
}

TEST(OracleTest, GradientsOfAFullyMaskedRowAreZero) {
  const Transform hidden{.keep = {false, false, false}};
  const Row x = {1, kNan, 3};
  const Row dy = {1, 2, 3};
  expect_all(softmax_backward(softmax(logits(x, hidden)), dy, x, hidden), 0, 3);
  expect_all(log_softmax_backward(log_softmax(logits(x, hidden)), dy, x, hidden), 0, 3);
  expect_all(cross_entropy_backward(x, hidden, {.target = 0, .label_smoothing = 0.1}, 1), 0, 3);
  const Transform swamped{.additive = {-kInf, -kInf, -kInf}};
  expect_all(cross_entropy_backward({1, 2, 3}, swamped, {.target = 0, .z_loss = 0.1}, 1), 0, 3);
}

// A target that is masked away: an infinite loss, and a gradient that pulls nothing towards it.
TEST(OracleTest, HiddenTarget) {
  const Transform t{.keep = {true, true, false}};
  const Row x = {0, std::log(3.0), 9};
  EXPECT_EQ(cross_entropy(logits(x, t), {.target = 2}), kInf);
  expect_near(cross_entropy_backward(x, t, {.target = 2}, 1), {0.25, 0.75, 0}, kClose);
}

// --- Masks, written out. A row is a query, a column a key; 1: seen. ---

template <class Keeps>
std::vector<std::string> table(std::int64_t queries, std::int64_t keys, Keeps keeps) {
  std::vector<std::string> rows;
  for (std::int64_t q = 0; q < queries; ++q) {
    rows.emplace_back();
    for (std::int64_t c = 0; c < keys; ++c) rows.back() += keeps(q, c, queries, keys) ? '1' : '0';
  }
  return rows;
}

using Table = std::vector<std::string>;

TEST(OracleMaskTest, CausalIsBottomRightAligned) {
  EXPECT_EQ(table(2, 5, causal_keeps), (Table{"11110",  //
                                              "11111"}));
  EXPECT_EQ(table(3, 3, causal_keeps), (Table{"100",  //
                                              "110",  //
                                              "111"}));
  EXPECT_EQ(table(5, 2, causal_keeps), (Table{"00",  //
                                              "00",  //
                                              "00",  //
                                              "10",  //
                                              "11"}));
  EXPECT_EQ(table(1, 4, causal_keeps), (Table{"1111"}));
}

TEST(OracleMaskTest, WindowStandsAroundTheQuery) {
  const auto window = [](std::int64_t left, std::int64_t right) {
    return [=](std::int64_t q, std::int64_t c, std::int64_t queries, std::int64_t keys) {
      return window_keeps(q, c, queries, keys, left, right);
    };
  };
  EXPECT_EQ(table(2, 5, window(1, 0)), (Table{"00110",  //
                                              "00011"}));
  EXPECT_EQ(table(2, 5, window(0, 0)), (Table{"00010",  //
                                              "00001"}));
  EXPECT_EQ(table(2, 5, window(2, -1)), (Table{"01111",  //
                                               "00111"}));
  EXPECT_EQ(table(2, 5, window(-1, 0)), table(2, 5, causal_keeps));
  EXPECT_EQ(table(2, 5, window(-1, -1)), (Table{"11111",  //
                                                "11111"}));
  EXPECT_EQ(table(4, 4, window(1, 1)), (Table{"1100",  //
                                              "1110",  //
                                              "0111",  //
                                              "0011"}));
  EXPECT_EQ(table(4, 2, window(0, 1)), (Table{"00",  //
                                              "10",  //
                                              "11",  //
                                              "01"}));
}

// --- Gradients: each against the slope of its own forward. ---

using Scalar = std::function<double(const Row&)>;

// Central differences, with their first error term taken off.
Row numeric_gradient(const Scalar& f, Row x) {
  Row gradient(x.size());
  for (std::size_t c = 0; c < x.size(); ++c) {
    const double at = x[c];
    const auto slope = [&](double h) {
      x[c] = at + h;
      const double above = f(x);
      x[c] = at - h;
      const double below = f(x);
      x[c] = at;
      return (above - below) / (2 * h);
    };
    gradient[c] = (4 * slope(1e-4) - slope(2e-4)) / 3;
  }
  return gradient;
}

struct Setting {
  std::string name;
  Transform transform;
};

// For rows of six. The last is all of them at once.
std::vector<Setting> settings() {
  const Row additive = {0.5, -1, 0, 2, -0.25, 1};
  const Keep keep = {true, false, true, true, false, true};
  return {
      {"plain", {}},
      {"scale", {.scale = -1.7}},
      {"temperature", {.temperature = 0.6}},
      {"softcap", {.softcap = 2.5}},
      {"additive", {.additive = additive}},
      {"masked", {.keep = keep}},
      {"all", {.scale = 1.3, .temperature = 0.7, .softcap = 3, .additive = additive, .keep = keep}},
  };
}

constexpr double kSlopeTolerance = 1e-9;

// Σ y·dy over what is kept: a hidden log-probability is −inf, and no constant factor.
double weighted(const Row& y, const Row& dy, const Transform& t) {
  double total = 0;
  for (std::size_t c = 0; c < y.size(); ++c) {
    if (t.keep.empty() || t.keep[c]) total += y[c] * dy[c];
  }
  return total;
}

TEST(OracleGradientTest, Softmax) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const Transform& t = setting.transform;
    const Row x = random_row(6, 1);
    const Row dy = random_row(6, 2);
    const Scalar f = [&](const Row& at) { return weighted(softmax(logits(at, t)), dy, t); };
    expect_near(softmax_backward(softmax(logits(x, t)), dy, x, t), numeric_gradient(f, x),
                kSlopeTolerance);
  }
}

TEST(OracleGradientTest, LogSoftmax) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const Transform& t = setting.transform;
    const Row x = random_row(6, 3);
    const Row dy = random_row(6, 4);
    const Scalar f = [&](const Row& at) { return weighted(log_softmax(logits(at, t)), dy, t); };
    expect_near(log_softmax_backward(log_softmax(logits(x, t)), dy, x, t), numeric_gradient(f, x),
                kSlopeTolerance);
  }
}

TEST(OracleGradientTest, CrossEntropy) {
  const double dloss = -1.75;
  const Row x = random_row(6, 5);
  for (const Setting& setting : settings()) {
    const Transform& t = setting.transform;
    const Row weight = {1, 0.5, 2, 0, 3, 0.25};
    const Row probabilities = {0.5, 0.25, 0, 1, 0.125, 0};
    for (const Loss& loss :
         {Loss{}, Loss{.label_smoothing = 0.2}, Loss{.z_loss = 0.05},
          Loss{.label_smoothing = 0.1, .z_loss = 0.3}, Loss{.weight = weight},
          Loss{.label_smoothing = 0.3, .z_loss = 0.1, .weight = weight},
          Loss{.probabilities = probabilities},
          Loss{.label_smoothing = 0.3, .weight = weight, .probabilities = probabilities}}) {
      for (const std::int64_t target : {0, 3, 5}) {
        SCOPED_TRACE(setting.name + ", target " + std::to_string(target) + ", smoothing " +
                     std::to_string(loss.label_smoothing) + ", z-loss " +
                     std::to_string(loss.z_loss));
        Loss each = loss;
        each.target = target;
        const Row z = logits(x, t);
        for (std::size_t c = 0; c < each.probabilities.size();
             ++c) {  // of a hidden class there is no slope
          if (z[c] == -kInf) each.probabilities[c] = 0;
        }
        const Scalar f = [&](const Row& at) { return dloss * cross_entropy(logits(at, t), each); };
        expect_near(cross_entropy_backward(x, t, each, dloss), numeric_gradient(f, x),
                    kSlopeTolerance);
      }
    }
  }
}

// A class that an additive −inf takes out is no class: smoothing spreads over the others.
TEST(OracleGradientTest, CrossEntropyWithAMinusInfClass) {
  const Transform t{.additive = {0, -kInf, 0.5, 0}};
  const Loss loss{.target = 2, .label_smoothing = 0.3, .z_loss = 0.1};
  const Row x = random_row(4, 6);
  const Scalar f = [&](const Row& at) { return cross_entropy(logits(at, t), loss); };
  const Row dx = cross_entropy_backward(x, t, loss, 1);
  expect_near(dx, numeric_gradient(f, x), kSlopeTolerance);
  EXPECT_EQ(dx[1], 0);
}

}  // namespace
}  // namespace oracle
