// Fills do what their names say: a test with the wrong numbers proves nothing.
#include "cli/problem/fill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "cli/ops/call.hpp"

namespace onepass::cli {
namespace {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 35;

using Rows = std::vector<std::vector<double>>;

Rows rows_of(std::string_view name, double limit = largest(DType::f32)) {
  const Fill* fill = find_fill(name);
  if (fill == nullptr) {
    ADD_FAILURE() << "there is no fill " << name;
    return Rows(kRows, std::vector<double>(kCols));
  }
  Random random(5);
  Rows rows(kRows);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kCols; ++c) {
      rows[static_cast<std::size_t>(r)].push_back(fill->value(r, c, kCols, random.normal(), limit));
    }
  }
  return rows;
}

bool minus_inf(double v) { return std::isinf(v) && v < 0; }
bool plus_inf(double v) { return std::isinf(v) && v > 0; }
bool finite(double v) { return std::isfinite(v); }
bool nan(double v) { return std::isnan(v); }

template <class Is>
std::int64_t count(const std::vector<double>& row, Is is) {
  return std::count_if(row.begin(), row.end(), is);
}

TEST(FillTest, NamesAreUniqueAndEachSaysWhatItCatches) {
  std::set<std::string_view> names;
  for (const Fill& fill : fills()) {
    EXPECT_TRUE(names.insert(fill.name).second) << fill.name;
    EXPECT_FALSE(fill.catches.empty()) << fill.name;
    EXPECT_EQ(find_fill(fill.name), &fill);
  }
  for (const char* wanted :
       {"random", "all_minus_inf", "some_minus_inf", "nan", "plus_inf", "huge_offset", "equal",
        "ascending", "descending", "ties", "extremes", "clustered", "crumbs", "level"}) {
    EXPECT_EQ(names.count(wanted), 1U) << wanted;
  }
  EXPECT_EQ(find_fill("zeros"), nullptr);
  EXPECT_EQ(find_fill(""), nullptr);
}

TEST(FillTest, RandomIsFiniteAndNeverTheSameTwice) {
  std::set<double> seen;
  for (const auto& row : rows_of("random")) {
    EXPECT_EQ(count(row, finite), kCols);
    seen.insert(row.begin(), row.end());
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kRows * kCols));
}

TEST(FillTest, MinusInfRowsStandBesideOthers) {
  const Rows rows = rows_of("all_minus_inf");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(count(rows[r], minus_inf), r % 2 == 0 ? kCols : 0) << r;
    EXPECT_EQ(count(rows[r], finite), r % 2 == 0 ? 0 : kCols) << r;
  }
}

TEST(FillTest, SomeMinusInfLeavesSomeAndBeginsWithOne) {
  const Rows rows = rows_of("some_minus_inf");
  for (const auto& row : rows) {
    EXPECT_GT(count(row, minus_inf), 0);
    EXPECT_GT(count(row, finite), 0);
    EXPECT_EQ(count(row, minus_inf) + count(row, finite), kCols);
  }
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](auto& row) { return minus_inf(row[0]); }));
}

TEST(FillTest, NanIsOneOfARowAndItsNeighboursAreClean) {
  const Rows rows = rows_of("nan");
  std::set<std::ptrdiff_t> places;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(count(rows[r], nan), r % 3 == 0 ? 1 : 0) << r;
    EXPECT_EQ(count(rows[r], finite), kCols - (r % 3 == 0 ? 1 : 0)) << r;
    if (r % 3 == 0) {
      places.insert(std::find_if(rows[r].begin(), rows[r].end(), nan) - rows[r].begin());
    }
  }
  EXPECT_GT(places.size(), 1U);  // not always in the same lane
}

TEST(FillTest, PlusInfIsOneOfARow) {
  const Rows rows = rows_of("plus_inf");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(count(rows[r], plus_inf), r % 3 == 1 ? 1 : 0) << r;
    EXPECT_EQ(count(rows[r], finite), kCols - (r % 3 == 1 ? 1 : 0)) << r;
  }
}

TEST(FillTest, HugeOffsetOverflowsAnExponential) {
  const Rows rows = rows_of("huge_offset");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const double v : rows[r]) {
      EXPECT_NEAR(v, r % 2 == 0 ? 1000 : -1000, 20);
      EXPECT_TRUE(std::exp(v) == 0 || std::isinf(std::exp(v)));  // in f64, let alone f32
    }
  }
}

TEST(FillTest, EqualRowsAreEqualAndDiffer) {
  const Rows rows = rows_of("equal");
  std::set<double> values;
  for (const auto& row : rows) {
    EXPECT_EQ(count(row, [&](double v) { return v == row[0]; }), kCols);
    values.insert(row[0]);
  }
  EXPECT_GT(values.size(), 1U);
}

TEST(FillTest, AscendingAndDescending) {
  for (const auto& row : rows_of("ascending")) {
    EXPECT_TRUE(std::is_sorted(row.begin(), row.end()));
    EXPECT_LT(row.front() + 10, row.back());
  }
  for (const auto& row : rows_of("descending")) {
    EXPECT_TRUE(std::is_sorted(row.rbegin(), row.rend()));
    EXPECT_GT(row.front(), row.back() + 10);
  }
}

TEST(FillTest, TiesAreTiesOfTheMaximum) {
  for (const auto& row : rows_of("ties")) {
    const double top = *std::max_element(row.begin(), row.end());
    EXPECT_GE(count(row, [&](double v) { return v == top; }), kCols / 4);
    EXPECT_LT(count(row, [&](double v) { return v == top; }), kCols);
  }
}

TEST(FillTest, ExtremesAreFiniteInTheirDtypeButNotTimesLog2E) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const double limit = largest(dtype);
    for (const auto& row : rows_of("extremes", limit)) {
      const auto [low, high] = std::minmax_element(row.begin(), row.end());
      EXPECT_LE(*high, limit) << name(dtype);
      EXPECT_GE(*low, -limit) << name(dtype);
      EXPECT_GT(*high / limit * 1.4426950408889634, 1) << name(dtype);
      EXPECT_LT(*low / limit * 1.4426950408889634, -1) << name(dtype);
    }
  }
}

// A list of sixteen a thread is too short for that, whichever of 256 threads has the slice.
TEST(FillTest, ClusteredHasTheLargestInOneSlice) {
  const Fill* fill = find_fill("clustered");
  ASSERT_NE(fill, nullptr);
  constexpr std::int64_t cols = 17 * 256;
  Random random(5);
  for (std::int64_t row = 0; row < 3; ++row) {
    std::vector<std::pair<double, std::int64_t>> sorted;
    for (std::int64_t c = 0; c < cols; ++c) {
      sorted.emplace_back(fill->value(row, c, cols, random.normal(), largest(DType::f32)), c);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    for (std::size_t i = 0; i < 17; ++i) {
      EXPECT_EQ(sorted[i].second % 256, sorted[0].second % 256) << row;
    }
    EXPECT_NE(sorted[17].second % 256, sorted[0].second % 256) << row;
  }
}

// Alone none counts beside 1 in float32; a thousand do not either.
TEST(FillTest, CrumbsAreLostBesideOneUntilThereAreThousands) {
  for (const auto& row : rows_of("crumbs")) {
    EXPECT_EQ(count(row, [](double v) { return v == 0; }), 1);
    const double crumb = std::exp(*std::min_element(row.begin(), row.end()));
    EXPECT_EQ(static_cast<float>(1 + 1024 * crumb), 1.0F);
    EXPECT_GT(static_cast<float>(1 + 2048 * crumb), 1.0F);
  }
}

// One after the other in float32, they drift away.
TEST(FillTest, LevelWeightsAllRoundTheSameWay) {
  double worst = 0;
  for (const auto& row : rows_of("level")) {
    EXPECT_EQ(count(row, [](double v) { return v == 0; }), 1);
    const auto weight = static_cast<float>(std::exp(*std::min_element(row.begin(), row.end())));
    float sum = 0;
    for (int i = 0; i < 100000; ++i) sum += weight;
    worst = std::max(worst,
                     std::abs(static_cast<double>(sum) / (1e5 * static_cast<double>(weight)) - 1));
  }
  EXPECT_GT(worst, 1e-5);
}

TEST(FillTest, LargestIsTheLastFiniteValue) {
  EXPECT_EQ(largest(DType::f64), std::numeric_limits<double>::max());
  EXPECT_EQ(largest(DType::f32), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(largest(DType::f16), 65504);
  EXPECT_EQ(largest(DType::bf16), std::ldexp(255, 120));
}

// A call's input is the fill, rounded to the dtype, and nothing turns into inf on the way.
TEST(FillTest, CallsAreFilledWithWhatTheyAskFor) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (const Fill& fill : fills()) {
      Call call;
      ASSERT_TRUE(
          call.make({.shape = {4, 9}, .in = dtype, .out = dtype, .fill = std::string(fill.name)})
              .ok());
      Call again;
      ASSERT_TRUE(again.make(call.spec()).ok());
      Random numbers(17);
      for (std::int64_t i = 0; i < call.in().size(); ++i) {
        const double got = call.in().get(i);
        const double kind = fill.value(i / 9, i % 9, 9, numbers.normal(), largest(dtype));
        EXPECT_EQ(std::isfinite(got), std::isfinite(kind)) << fill.name << " " << name(dtype);
        EXPECT_EQ(std::isnan(got), std::isnan(kind)) << fill.name << " " << name(dtype);
        EXPECT_TRUE(std::isnan(got) || got == again.in().get(i)) << fill.name;
      }
    }
  }
  Call call;
  const Status status = call.make({.shape = {2, 2}, .fill = "zeros"});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "fill: there is no 'zeros'");
}

TEST(FillTest, AnotherSeedIsAnotherInput) {
  Call one;
  Call two;
  ASSERT_TRUE(one.make({.shape = {3, 5}, .seed = 1}).ok());
  ASSERT_TRUE(two.make({.shape = {3, 5}, .seed = 2}).ok());
  int same = 0;
  for (std::int64_t i = 0; i < 15; ++i) same += one.in().get(i) == two.in().get(i) ? 1 : 0;
  EXPECT_LT(same, 3);
}

// splitmix64, whose numbers are published, with this seeding.
TEST(RandomTest, SameNumbersEverywhere) {
  Random random(1);
  EXPECT_EQ(random.bits(), 0xBEEB8DA1658EEC67U);
  EXPECT_EQ(random.bits(), 0xF893A2EEFB32555EU);
  EXPECT_EQ(Random(2).bits(), 0xF893A2EEFB32555EU);
}

TEST(RandomTest, UniformAndNormalHaveTheirMoments) {
  Random random(3);
  constexpr int draws = 20000;
  double sum = 0;
  double normal_sum = 0;
  double squares = 0;
  for (int i = 0; i < draws; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    const double n = random.normal();
    normal_sum += n;
    squares += n * n;
  }
  EXPECT_NEAR(sum / draws, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / draws, 0, 0.03);
  EXPECT_NEAR(squares / draws, 1, 0.03);
}

}  // namespace
}  // namespace onepass::cli
