// 16-bit floats in vectors against the scalar code, for every instruction set that this machine can
// run: each value and each rounding.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/simd/convert_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"

// What is compiled per target only moves data; everything is judged below, once.
HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Whole vectors to and from a 16-bit type; element by element where this target knows no better.
template <class Stored>
void NarrowAs(const float* x, Stored* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    if constexpr (kVectorConvert<float, Stored>) {
      StoreAs(d, v, y + i);
    } else {
      StoreTail(d, v, y + i, hn::Lanes(d));
    }
  }
}

template <class Stored>
void WidenAs(const Stored* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    if constexpr (kVectorConvert<float, Stored>) {
      hn::StoreU(LoadAs(d, x + i), d, y + i);
    } else {
      hn::StoreU(LoadTail(d, x + i, hn::Lanes(d), 0.0F), d, y + i);
    }
  }
}

// As kernels do it with bf16: a tile in pairs to `kept`, and from there, multiplied, to y. n is a
// multiple of two vectors.
void ScalePairs(const BF16* x, float factor, float* kept, BF16* y, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto* from = AnyOrder(x);
  using Stored = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
  ForEachPack(d, from, n, 0.0F, [=](auto& pack, size_t i) ONEPASS_INLINE {
    for (const auto& v : pack) {
      hn::StoreU(v, d, kept + i);
      i += lanes;
    }
  });
  const auto scaled = hn::Set(d, factor);
  constexpr size_t kVectors = kGroup<float, Stored>;
  for (size_t i = 0; i < n; i += kVectors * lanes) {
    StoreScaled<false, kVectors>(d, kept + i, scaled, static_cast<Stored*>(y + i));
  }
}

void NarrowF16(const float* x, F16* y, size_t n) { NarrowAs(x, y, n); }
void NarrowBF16(const float* x, BF16* y, size_t n) { NarrowAs(x, y, n); }
void WidenF16(const F16* x, float* y, size_t n) { WidenAs(x, y, n); }
void WidenBF16(const BF16* x, float* y, size_t n) { WidenAs(x, y, n); }

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

HWY_EXPORT(ScalePairs);
HWY_EXPORT(NarrowF16);
HWY_EXPORT(NarrowBF16);
HWY_EXPORT(WidenF16);
HWY_EXPORT(WidenBF16);

namespace {

std::vector<BF16> scale_pairs(const std::vector<BF16>& x, float factor) {
  std::vector<float> kept(x.size());
  std::vector<BF16> y(x.size());
  HWY_DYNAMIC_DISPATCH(ScalePairs)(x.data(), factor, kept.data(), y.data(), x.size());
  return y;
}

// Every bf16 from 0 to 1, in pairs with the ones from 1 to 0.
std::vector<BF16> weights_in_bf16() {
  std::vector<BF16> x;
  for (std::uint16_t bits = 0; bits <= 0x3F80; ++bits) {
    x.push_back({bits});
    x.push_back({static_cast<std::uint16_t>(0x3F80 - bits)});
  }
  x.resize((x.size() / (2 * kMostLanes) + 1) * 2 * kMostLanes, BF16{0});
  return x;
}

TEST_P(SimdTest, PairsComeBackInOrder) {
  const std::vector<BF16> x = weights_in_bf16();
  const std::vector<BF16> y = scale_pairs(x, 1);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, x[i].bits) << i;
}

TEST_P(SimdTest, PairsAreScaledAndRoundedToNearest) {
  const std::vector<BF16> x = weights_in_bf16();
  for (const float factor : {0.999F, 0.7F, 1 / 3.0F, 1e-3F, 0x1p-20F, 1e-12F}) {
    const std::vector<BF16> y = scale_pairs(x, factor);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = static_cast<double>(to_float(x[i])) * factor;
      const double step = std::max(exact * 0x1p-7, 0x1p-133);  // of bf16 at least, and its smallest
      ASSERT_NEAR(to_float(y[i]), exact, exact < 0x1p-126 ? step : step * 0.5001)
          << to_float(x[i]) << " * " << factor;
    }
  }
}

TEST_P(SimdTest, PairsKeepNan) {
  std::vector<BF16> x;
  for (std::uint32_t bits = 0x7F81; bits <= 0x7FFF; ++bits) {
    x.push_back({static_cast<std::uint16_t>(bits)});
    x.push_back({static_cast<std::uint16_t>(bits | 0x8000)});
  }
  x.resize((x.size() / (2 * kMostLanes) + 1) * 2 * kMostLanes, BF16{0x7FC0});
  for (const BF16 y : scale_pairs(x, 0.5F)) ASSERT_TRUE(std::isnan(to_float(y)));
  // A NaN that bf16 can hold, which is what comes of bf16.
  for (const std::uint32_t nan : {0x7FFF0000U, 0xFFFF0000U, 0x7FC00000U}) {
    for (const BF16 y : scale_pairs(weights_in_bf16(), std::bit_cast<float>(nan))) {
      ASSERT_TRUE(std::isnan(to_float(y)));
    }
  }
}

// Every value of a 16-bit type, the middle to the next one, and the floats beside that: where
// rounding is decided, in both signs. And NaNs.
template <class Stored>
std::vector<float> rounding_cases() {
  std::vector<float> x = nans<float, std::uint32_t>();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float low = to_float(Stored{static_cast<std::uint16_t>(bits)});
    const float high = to_float(Stored{static_cast<std::uint16_t>(bits + 1)});
    // Between the largest and inf lies the middle that would be there with one more exponent.
    const float step = std::isinf(high)
                           ? low - to_float(Stored{static_cast<std::uint16_t>(bits - 1)})
                           : high - low;
    const float middle = low + step / 2;
    x.push_back(low);
    x.push_back(middle);
    x.push_back(std::nextafter(middle, HUGE_VALF));
    x.push_back(std::nextafter(middle, -HUGE_VALF));
  }
  for (const float extreme :
       {std::numeric_limits<float>::max(), HUGE_VALF, std::numeric_limits<float>::denorm_min()}) {
    x.push_back(extreme);
    x.push_back(-extreme);
  }
  return padded(x);
}

// A NaN stays one; which one is nobody's business.
bool same_number(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

template <class Stored>
void expect_same_rounding(const std::vector<float>& x, const std::vector<Stored>& y,
                          Stored (*scalar)(float)) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (same_number(to_float(y[i]), to_float(scalar(x[i])))) continue;
    FAIL() << std::hexfloat << x[i] << " became " << std::hex << y[i].bits << ", not "
           << scalar(x[i]).bits;
  }
}

TEST_P(SimdTest, NarrowsToBF16AsTheScalarCodeDoes) {
  const std::vector<float> x = rounding_cases<BF16>();
  std::vector<BF16> y(x.size());
  HWY_DYNAMIC_DISPATCH(NarrowBF16)(x.data(), y.data(), x.size());
  expect_same_rounding(x, y, to_bf16);
}

TEST_P(SimdTest, NarrowsToF16AsTheScalarCodeDoes) {
  const std::vector<float> x = rounding_cases<F16>();
  std::vector<F16> y(x.size());
  HWY_DYNAMIC_DISPATCH(NarrowF16)(x.data(), y.data(), x.size());
  expect_same_rounding(x, y, to_f16);
}

template <class Stored>
void expect_same_values(const std::vector<Stored>& x, const std::vector<float>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (same_number(y[i], to_float(x[i]))) continue;
    FAIL() << std::hex << x[i].bits << " became " << std::hexfloat << y[i] << ", not "
           << to_float(x[i]);
  }
}

template <class Stored>
std::vector<Stored> every_pattern() {
  std::vector<Stored> x;
  for (int bits = 0; bits < 0x10000; ++bits) x.push_back({static_cast<std::uint16_t>(bits)});
  return x;
}

TEST_P(SimdTest, WidensEveryBF16) {
  const std::vector<BF16> x = every_pattern<BF16>();
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(WidenBF16)(x.data(), y.data(), x.size());
  expect_same_values(x, y);
}

TEST_P(SimdTest, WidensEveryF16) {
  const std::vector<F16> x = every_pattern<F16>();
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(WidenF16)(x.data(), y.data(), x.size());
  expect_same_values(x, y);
}

}  // namespace
}  // namespace onepass

#endif
