// exp of core/simd, once for every instruction set that this machine can run.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/simd/exp_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/simd/exp-inl.hpp"
#include "core/simd/inline-inl.hpp"

// What is compiled per target only moves data; everything is judged below, once.
HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

const char* Target() { return hwy::TargetName(HWY_TARGET); }

// Whole vectors only: n is a multiple of the lanes.
template <class T>
void Exp(const T* x, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(ExpOfNonPositive(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

// The same three vectors at a time.
template <class T>
void ExpPacks(const T* x, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += 3 * lanes) {
    hn::Vec<decltype(d)> pack[3];
    for (size_t k = 0; k < 3; ++k) pack[k] = hn::LoadU(d, x + i + k * lanes);
    ExpOfNonPositive(d, pack);
    for (size_t k = 0; k < 3; ++k) hn::StoreU(pack[k], d, y + i + k * lanes);
  }
}

void ExpF32(const float* x, float* y, size_t n) { Exp(x, y, n); }
void ExpF64(const double* x, double* y, size_t n) { Exp(x, y, n); }
void ExpPacksF32(const float* x, float* y, size_t n) { ExpPacks(x, y, n); }
void ExpPacksF64(const double* x, double* y, size_t n) { ExpPacks(x, y, n); }

void ExpShort(const float* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::Vec<decltype(d)> pack[1] = {hn::LoadU(d, x + i)};
    ExpOfShort(d, pack);
    hn::StoreU(pack[0], d, y + i);
  }
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/core/simd/every_isa.hpp"

namespace onepass {

HWY_EXPORT(Target);
HWY_EXPORT(ExpF32);
HWY_EXPORT(ExpF64);
HWY_EXPORT(ExpPacksF32);
HWY_EXPORT(ExpPacksF64);
HWY_EXPORT(ExpShort);

namespace {

// All of SimdTest, of the other files as well.
INSTANTIATE_TEST_SUITE_P(EveryIsa, SimdTest, testing::ValuesIn(runnable_isas()),
                         [](const auto& isa) { return isa.param; });

TEST_P(SimdTest, TheForcedIsaRuns) { EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Target)(), GetParam()); }

std::vector<float> exp_of(std::vector<float> x) {
  const std::size_t n = x.size();
  x = padded(std::move(x));
  HWY_DYNAMIC_DISPATCH(ExpF32)(x.data(), x.data(), x.size());
  x.resize(n);
  return x;
}

std::vector<double> exp_of(std::vector<double> x) {
  const std::size_t n = x.size();
  x = padded(std::move(x));
  HWY_DYNAMIC_DISPATCH(ExpF64)(x.data(), x.data(), x.size());
  x.resize(n);
  return x;
}

// Evenly over [lowest, 0], and ever closer to 0.
template <class T>
std::vector<T> grid(T lowest, int points) {
  std::vector<T> x;
  for (int i = 0; i <= points; ++i) x.push_back(lowest * T(i) / T(points));
  for (T v = lowest; v < -std::numeric_limits<T>::min(); v *= T(0.97)) x.push_back(v);
  return x;
}

template <class T>
double ulp(T exact) {
  const int exponent = std::ilogb(exact) + 1 - std::numeric_limits<T>::digits;
  return std::ldexp(1.0, exponent);
}

// The accuracy of exp, in ulps of its result, over the arguments whose exp is a normal number. In
// f32 ln 2 is one float, whose error counts once for every halving: small weights are less
// accurate, and still better than a rounding of their argument allows.
struct Accuracy {
  double lowest;  // arguments from here to 0
  double most_ulps;
};
constexpr Accuracy kAccuracyF32[] = {{-1, 1.0}, {-10, 1.5}, {-87, 5.0}};
constexpr Accuracy kAccuracyF64[] = {{-1, 1.0}, {-10, 1.0}, {-708, 1.0}};

// Wide: a type with enough digits to be exact beside T.
template <class Wide, class T>
double most_ulps(const std::vector<T>& x, const std::vector<T>& y) {
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Wide exact = std::exp(static_cast<Wide>(x[i]));
    const double error = static_cast<double>(std::abs(static_cast<Wide>(y[i]) - exact));
    most = std::max(most, std::isnan(y[i]) ? HUGE_VAL : error / ulp(static_cast<T>(exact)));
  }
  return most;
}

TEST_P(SimdTest, ExpIsAccurateInF32) {
  for (const Accuracy& row : kAccuracyF32) {
    const std::vector<float> x = grid(static_cast<float>(row.lowest), 100000);
    EXPECT_LE(most_ulps<double>(x, exp_of(x)), row.most_ulps) << "over [" << row.lowest << ", 0]";
  }
}

TEST_P(SimdTest, ExpIsAccurateInF64) {
  for (const Accuracy& row : kAccuracyF64) {
    const std::vector<double> x = grid(row.lowest, 5000);
    EXPECT_LE(most_ulps<long double>(x, exp_of(x)), row.most_ulps)
        << "over [" << row.lowest << ", 0]";
  }
}

TEST_P(SimdTest, ExpNeverExceedsOne) {
  for (const float y : exp_of(grid(-87.0F, 20000))) ASSERT_LE(y, 1.0F);
  for (const double y : exp_of(grid(-708.0, 20000))) ASSERT_LE(y, 1.0);
}

template <class T>
void check_ends(T first_subnormal) {
  const T inf = std::numeric_limits<T>::infinity();
  const T tiny = std::numeric_limits<T>::denorm_min();
  EXPECT_EQ(exp_of(std::vector<T>{0, T(-0.0), -tiny, -std::numeric_limits<T>::min()}),
            (std::vector<T>{1, 1, 1, 1}));
  EXPECT_EQ(exp_of(std::vector<T>{-inf, std::numeric_limits<T>::lowest(), T(-1e30), T(-1e5)}),
            (std::vector<T>{0, 0, 0, 0}));
  std::vector<T> x;
  for (T v = first_subnormal; v > 2 * first_subnormal; v *= T(1.0001)) x.push_back(v);
  for (const T y : exp_of(x)) {
    ASSERT_GE(y, T(0));
    ASSERT_LE(y, std::numeric_limits<T>::min());
  }
}

TEST_P(SimdTest, ExpAtZeroAndBelowTheSmallestNormalF32) { check_ends<float>(-87.3366F); }
TEST_P(SimdTest, ExpAtZeroAndBelowTheSmallestNormalF64) { check_ends<double>(-708.3965); }

TEST_P(SimdTest, ExpOfNanIsNanWithEveryPayload) {
  const std::vector<float> single = nans<float, std::uint32_t>();
  ASSERT_EQ(std::bit_cast<std::uint32_t>(single[0]), 0x7FFFFFFFU);
  ASSERT_EQ(std::bit_cast<std::uint32_t>(single[2]), 0x7F800001U);
  for (const float y : exp_of(single)) EXPECT_TRUE(std::isnan(y));
  for (const double y : exp_of(nans<double, std::uint64_t>())) EXPECT_TRUE(std::isnan(y));
}

std::vector<float> short_exp_of(std::vector<float> x) {
  const std::size_t n = x.size();
  x = padded(std::move(x));
  HWY_DYNAMIC_DISPATCH(ExpShort)(x.data(), x.data(), x.size());
  x.resize(n);
  return x;
}

TEST_P(SimdTest, ShortExpIsAccurateBeyondTheDigitsOfItsLogits) {
  const std::vector<float> x = grid(-87.0F, 100000);
  const std::vector<float> y = short_exp_of(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, exact * (2e-7 + 1.2e-7 * std::abs(x[i]))) << x[i];
  }
}

TEST_P(SimdTest, ShortExpOfWhatIsNoNumberOrTooSmall) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(short_exp_of({-inf, std::numeric_limits<float>::lowest(), -1e30F, -1e5F}),
            (std::vector<float>{0, 0, 0, 0}));
  for (const float y : short_exp_of({0.0F, -0.0F, -1e-30F})) EXPECT_NEAR(y, 1, 1.2e-7);
  for (const float y : short_exp_of(nans<float, std::uint32_t>())) EXPECT_TRUE(std::isnan(y));
}

TEST_P(SimdTest, ExpOfAPackIsExpOfEachVector) {
  const std::vector<float> x = padded(grid(-90.0F, 1000));
  std::vector<float> one(x.size());
  std::vector<float> three(x.size());
  HWY_DYNAMIC_DISPATCH(ExpF32)(x.data(), one.data(), x.size());
  HWY_DYNAMIC_DISPATCH(ExpPacksF32)(x.data(), three.data(), x.size());
  EXPECT_EQ(one, three);
  const std::vector<double> wide_x = padded(grid(-720.0, 1000));
  std::vector<double> wide_one(wide_x.size());
  std::vector<double> wide_three(wide_x.size());
  HWY_DYNAMIC_DISPATCH(ExpF64)(wide_x.data(), wide_one.data(), wide_x.size());
  HWY_DYNAMIC_DISPATCH(ExpPacksF64)(wide_x.data(), wide_three.data(), wide_x.size());
  EXPECT_EQ(wide_one, wide_three);
}

}  // namespace
}  // namespace onepass

#endif
