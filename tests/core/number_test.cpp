// The 16-bit formats against tables of all their values, and the one switch over dtypes.
#include "core/number.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace onepass {
namespace {

// A format in words: what its bits mean, without the code under test.
struct Half {
  using Stored = F16;
  static constexpr int exponent_bits = 5, mantissa_bits = 10;
  static F16 round(float x) { return to_f16(x); }
};

struct Brain {
  using Stored = BF16;
  static constexpr int exponent_bits = 8, mantissa_bits = 7;
  static BF16 round(float x) { return to_bf16(x); }
};

template <class Format>
constexpr std::uint16_t kInfBits = ((1 << Format::exponent_bits) - 1) << Format::mantissa_bits;

// The value of non-negative bits by the definition of the format.
template <class Format>
double value_of(std::uint16_t bits) {
  const int exponent = bits >> Format::mantissa_bits;
  const int mantissa = bits & ((1 << Format::mantissa_bits) - 1);
  const int bias = (1 << (Format::exponent_bits - 1)) - 1;
  if (bits == kInfBits<Format>) return std::numeric_limits<double>::infinity();
  if (bits > kInfBits<Format>) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - Format::mantissa_bits);
  return std::ldexp((1 << Format::mantissa_bits) + mantissa,
                    exponent - bias - Format::mantissa_bits);
}

// Where rounding would go if there were one more exponent: the last step before inf is as wide as
// the one below it.
template <class Format>
double step_above(std::uint16_t bits) {
  const double here = value_of<Format>(bits);
  return bits + 1 == kInfBits<Format> ? here + (here - value_of<Format>(bits - 1))
                                      : value_of<Format>(bits + 1);
}

// The bits nearest to x, ties to the even ones, found by search.
template <class Format>
std::uint16_t nearest(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::abs(static_cast<double>(x));
  std::uint16_t low = 0;
  for (std::uint16_t step = 0x4000; step != 0; step >>= 1) {
    const std::uint16_t candidate = low + step;
    if (candidate < kInfBits<Format> && value_of<Format>(candidate) <= size) low = candidate;
  }
  const double below = size - value_of<Format>(low);
  const double above = step_above<Format>(low) - size;
  const bool up = above < below || (above == below && low % 2 == 1);
  return sign | (size == std::numeric_limits<double>::infinity() ? kInfBits<Format>
                 : up                                            ? low + 1
                                                                 : low);
}

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

template <class Format>
class SixteenBitTest : public testing::Test {};

using Formats = testing::Types<Half, Brain>;
TYPED_TEST_SUITE(SixteenBitTest, Formats);

TYPED_TEST(SixteenBitTest, EveryPatternHasItsValueAndRoundTrips) {
  using Stored = typename TypeParam::Stored;
  for (int all = 0; all < 0x10000; ++all) {
    const auto bits = static_cast<std::uint16_t>(all);
    const std::uint16_t magnitude = bits & 0x7FFF;
    const float value = to_float(Stored{bits});
    const std::uint16_t back = TypeParam::round(value).bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << std::hex << all;
    if (magnitude > kInfBits<TypeParam>) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << all;
      ASSERT_GT(back & 0x7FFF, kInfBits<TypeParam>) << std::hex << all;
      ASSERT_EQ(back & 0x8000, bits & 0x8000) << std::hex << all;
    } else {
      ASSERT_EQ(std::abs(value), value_of<TypeParam>(magnitude)) << std::hex << all;
      ASSERT_EQ(back, bits) << std::hex << all;
    }
  }
}

// Rounding is decided at the middle of every two neighbours: subnormals, powers of two and the step
// to inf are among them.
TYPED_TEST(SixteenBitTest, EveryTieGoesToEvenAndItsNeighboursToTheirSide) {
  for (std::uint16_t low = 0; low < kInfBits<TypeParam>; ++low) {
    const double exact = (value_of<TypeParam>(low) + step_above<TypeParam>(low)) / 2;
    const auto middle = static_cast<float>(exact);
    ASSERT_EQ(middle, exact);  // or this test would prove nothing
    const std::uint16_t high = low + 1;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    const float before = std::nextafter(middle, 0.0F);
    const float after = std::nextafter(middle, std::numeric_limits<float>::infinity());
    ASSERT_EQ(TypeParam::round(middle).bits, even) << exact;
    ASSERT_EQ(TypeParam::round(before).bits, low) << exact;
    ASSERT_EQ(TypeParam::round(after).bits, high) << exact;
    ASSERT_EQ(TypeParam::round(-middle).bits, even | 0x8000) << exact;
    ASSERT_EQ(TypeParam::round(-before).bits, low | 0x8000) << exact;
    ASSERT_EQ(TypeParam::round(-after).bits, high | 0x8000) << exact;
  }
}

TYPED_TEST(SixteenBitTest, RandomFloatsRoundToTheNearest) {
  std::mt19937 random(20);
  for (int i = 0; i < 100000; ++i) {
    // Any bits at all, and bits with the exponents that this format has.
    const auto any = static_cast<std::uint32_t>(random());
    const std::uint32_t exponent = 127 - 30 + random() % 48;
    const float x = from_bits(i % 2 == 0 ? any : (any & 0x807FFFFF) | exponent << 23);
    if (std::isnan(x)) continue;
    ASSERT_EQ(TypeParam::round(x).bits, nearest<TypeParam>(x)) << x;
  }
}

TYPED_TEST(SixteenBitTest, EndsOfTheRange) {
  const float top = static_cast<float>(value_of<TypeParam>(kInfBits<TypeParam> - 1));
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam::round(top).bits, kInfBits<TypeParam> - 1);
  EXPECT_EQ(TypeParam::round(std::numeric_limits<float>::max()).bits, kInfBits<TypeParam>);
  EXPECT_EQ(TypeParam::round(-std::numeric_limits<float>::max()).bits,
            kInfBits<TypeParam> | 0x8000);
  EXPECT_EQ(TypeParam::round(inf).bits, kInfBits<TypeParam>);
  EXPECT_EQ(TypeParam::round(-inf).bits, kInfBits<TypeParam> | 0x8000);
  EXPECT_EQ(TypeParam::round(0.0F).bits, 0);
  EXPECT_EQ(TypeParam::round(-0.0F).bits, 0x8000);
  EXPECT_EQ(TypeParam::round(std::numeric_limits<float>::denorm_min()).bits, 0);
}

// Every payload that could survive the cut, with what is cut off empty, least and full: a NaN of
// low bits alone would become inf where bits are just dropped, or 0 where they are rounded up.
TYPED_TEST(SixteenBitTest, NanStaysNanWithEveryPayload) {
  for (std::uint32_t high = 0; high < 0x400; ++high) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1FFFU}) {
      const std::uint32_t payload = high << 13 | low;
      if (payload == 0) continue;
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const std::uint16_t bits = TypeParam::round(from_bits(sign | 0x7F800000 | payload)).bits;
        ASSERT_GT(bits & 0x7FFF, kInfBits<TypeParam>) << std::hex << payload;
        ASSERT_EQ((bits & 0x8000) != 0, sign != 0) << std::hex << payload;
      }
    }
  }
}

TEST(NumberTest, KnownBits) {
  EXPECT_EQ(to_f16(1.0F).bits, 0x3C00);
  EXPECT_EQ(to_f16(-2.0F).bits, 0xC000);
  EXPECT_EQ(to_f16(65504.0F).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_f16(0x1p-24F).bits, 0x0001);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0x0000);
  EXPECT_EQ(to_f16(0x1.8p-24F).bits, 0x0002);
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(0x1.01p0F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(0x1.03p0F).bits, 0x3F82);
  EXPECT_EQ(to_bf16(3.4e38F).bits, 0x7F80);
}

constexpr std::array kDTypes = {DType::f32, DType::f16, DType::bf16, DType::f64,
                                DType::u8,  DType::i32, DType::i64};

TEST(NumberTest, WithTypeHandsOutTheTypeOfTheDtype) {
  for (const DType dtype : kDTypes) {
    const std::size_t size =
        with_type(dtype, []<class Stored>(Type<Stored>) { return sizeof(Stored); });
    EXPECT_EQ(size, size_of(dtype)) << name(dtype);
  }
  const auto letter = [](DType dtype) {
    return with_type(dtype, []<class Stored>(Type<Stored>) {
      return std::is_same_v<Stored, F16>            ? 'h'
             : std::is_same_v<Stored, BF16>         ? 'b'
             : std::is_same_v<Stored, float>        ? 'f'
             : std::is_same_v<Stored, double>       ? 'd'
             : std::is_same_v<Stored, std::uint8_t> ? 'u'
             : std::is_same_v<Stored, std::int32_t> ? 'i'
             : std::is_same_v<Stored, std::int64_t> ? 'l'
                                                    : '?';
    });
  };
  std::string letters;
  for (const DType dtype : kDTypes) letters += letter(dtype);
  EXPECT_EQ(letters, "fhbduil");
}

TEST(NumberTest, WriteThenReadAnyDtypeAndNothingBeside) {
  constexpr std::int64_t count = 5;
  const std::array<double, count> values = {0, 1, 2, 100, 127};  // exact in all of them
  for (const DType dtype : kDTypes) {
    const std::size_t size = size_of(dtype);
    for (std::int64_t at = 0; at < count; ++at) {
      alignas(8) std::array<unsigned char, (count + 2) * 8> memory;
      memory.fill(0xA5);
      for (const double value : values) {
        write(memory.data(), dtype, at, value);
        EXPECT_EQ(read<double>(memory.data(), dtype, at), value) << name(dtype);
        EXPECT_EQ(read<float>(memory.data(), dtype, at), static_cast<float>(value)) << name(dtype);
        EXPECT_EQ(read<std::int64_t>(memory.data(), dtype, at), static_cast<std::int64_t>(value));
      }
      const std::size_t begin = static_cast<std::size_t>(at) * size;
      for (std::size_t b = 0; b < memory.size(); ++b) {
        const bool beside = b < begin || b >= begin + size;
        ASSERT_TRUE(!beside || memory[b] == 0xA5) << name(dtype) << " byte " << b;
      }
    }
  }
}

TEST(NumberTest, EachDtypeKeepsWhatItCan) {
  alignas(8) std::array<unsigned char, 8> cell{};
  const auto through = [&](DType dtype, double value) {
    write(cell.data(), dtype, 0, value);
    return read<double>(cell.data(), dtype, 0);
  };
  EXPECT_EQ(through(DType::f64, 0.1), 0.1);
  EXPECT_EQ(through(DType::f32, 0.1), static_cast<double>(0.1F));
  EXPECT_EQ(through(DType::f16, 0.1), 0x1.998p-4);
  EXPECT_EQ(through(DType::bf16, 0.1), 0x1.9Ap-4);
  EXPECT_EQ(through(DType::i32, -2147483648.0), -2147483648.0);
  EXPECT_EQ(through(DType::u8, 255.0), 255.0);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    EXPECT_TRUE(std::isnan(through(dtype, std::numeric_limits<double>::quiet_NaN())));
    EXPECT_EQ(through(dtype, -std::numeric_limits<double>::infinity()),
              -std::numeric_limits<double>::infinity());
  }
  // Targets and lengths: all 64 bits, not the 53 of a double.
  const std::int64_t odd = (std::int64_t{1} << 62) + 1;
  write(cell.data(), DType::i64, 0, odd);
  EXPECT_EQ(read<std::int64_t>(cell.data(), DType::i64, 0), odd);
  write<std::int64_t>(cell.data(), DType::i32, 0, -100);
  EXPECT_EQ(read<std::int64_t>(cell.data(), DType::i32, 0), -100);
}

}  // namespace
}  // namespace onepass
