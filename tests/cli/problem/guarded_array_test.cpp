// Guarded arrays: elements can be written, and a byte written anywhere else is found.
#include "cli/problem/guarded_array.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/number.hpp"

namespace onepass::cli {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Shape {
  std::vector<std::int64_t> shape;
  Layout layout;
};

std::vector<Shape> layouts() {
  return {{{4, 5}, {}},
          {{4, 5}, {.pad = 3}},
          {{4, 5}, {.step = 2}},
          {{2, 3, 5}, {.pad = 1, .step = 3, .offset = 2}},
          {{}, {}},
          {{0, 5}, {}}};
}

TEST(GuardedArrayTest, ElementsCanBeWrittenAndNothingElse) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::u8}) {
    for (const Shape& how : layouts()) {
      GuardedArray array;
      ASSERT_TRUE(array.make(dtype, how.shape, how.layout).ok());
      EXPECT_TRUE(array.intact());
      for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, static_cast<double>(i % 7));
      for (std::int64_t i = 0; i < array.size(); ++i) {
        EXPECT_EQ(array.get(i), static_cast<double>(i % 7)) << name(dtype);
      }
      EXPECT_TRUE(array.intact()) << name(dtype);
      array.poison();
      EXPECT_TRUE(array.intact()) << name(dtype);
      for (std::int64_t i = 0; is_floating(dtype) && i < array.size(); ++i) {
        EXPECT_TRUE(std::isnan(array.get(i))) << name(dtype);
      }
    }
  }
}

// Guards are out of bounds to AddressSanitizer, too.
__attribute__((no_sanitize("address"))) void write_anywhere(std::byte* to, std::byte value) {
  *to = value;
}
__attribute__((no_sanitize("address"))) std::byte read_anywhere(const std::byte* from) {
  return *from;
}

TEST(GuardedArrayTest, OneByteOutsideIsFound) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64}) {
    for (const Shape& how : layouts()) {
      GuardedArray array;
      ASSERT_TRUE(array.make(dtype, how.shape, how.layout).ok());
      for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, 1);
      // The bytes of elements, found by setting them to something else.
      const auto size = static_cast<std::ptrdiff_t>(size_of(dtype));
      const auto* first = static_cast<const std::byte*>(array.tensor().data);
      std::ptrdiff_t end = 0;
      for (int d = 0; d < array.tensor().rank && array.size() > 0; ++d) {
        end += (array.tensor().shape[static_cast<std::size_t>(d)] - 1) *
               array.tensor().strides[static_cast<std::size_t>(d)] * size;
      }
      end += array.size() > 0 ? size : 0;
      auto* bytes = static_cast<std::byte*>(array.tensor().data);
      std::vector<std::byte> before(first, first + end);
      for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, kNan);
      // From 100 bytes ahead of the first element to 100 past the last.
      for (std::ptrdiff_t b = -100; b < end + 100; ++b) {
        const bool inside = b >= 0 && b < end;
        bool element = false;
        if (inside) {  // every element has a byte that differs between 1 and NaN
          const std::ptrdiff_t start = b / size * size;
          element = std::memcmp(before.data() + start, first + start,
                                static_cast<std::size_t>(size)) != 0;
        }
        const std::byte kept = read_anywhere(bytes + b);
        write_anywhere(bytes + b, ~kept);
        EXPECT_EQ(array.intact(), element) << name(dtype) << " byte " << b;
        write_anywhere(bytes + b, kept);
      }
      EXPECT_TRUE(array.intact());
    }
  }
}

TEST(GuardedArrayTest, TakesAnyStrides) {
  const std::vector<std::int64_t> shape = {3, 4};
  GuardedArray array;
  ASSERT_TRUE(array.make(DType::f32, shape, std::vector<std::int64_t>{-9, 2}, 1).ok());
  array.poison();
  EXPECT_TRUE(array.poisoned());
  for (std::int64_t i = 0; i < 12; ++i) array.set(i, static_cast<double>(i));
  EXPECT_FALSE(array.poisoned());
  EXPECT_TRUE(array.intact());
  const auto* data = static_cast<const float*>(array.tensor().data);
  EXPECT_EQ(data[-2 * 9 + 3 * 2], 11);
  ASSERT_TRUE(array.make(DType::f32, shape, std::vector<std::int64_t>{0, 1}, 0).ok());
  array.set(1, 5);
  EXPECT_EQ(array.get(9), 5);  // the rows are one
  ASSERT_TRUE(
      array.make(DType::f32, std::vector<std::int64_t>{0, 4}, std::vector<std::int64_t>{-4, 1}, 0)
          .ok());
  EXPECT_EQ(array.size(), 0);
  EXPECT_TRUE(array.intact());
}

TEST(GuardedArrayTest, LiesWhereItsLayoutSays) {
  GuardedArray array;
  ASSERT_TRUE(
      array.make(DType::f32, std::vector<std::int64_t>{3, 4}, {.pad = 5, .step = 2, .offset = 1})
          .ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.tensor().data) % 64, 4U);
  EXPECT_EQ(array.tensor().strides[1], 2);
  EXPECT_EQ(array.tensor().strides[0], 4 * 2 + 5);
  for (std::int64_t i = 0; i < 12; ++i) array.set(i, static_cast<double>(i));
  EXPECT_EQ(read<double>(array.tensor().data, DType::f32, 2 * 13 + 3 * 2), 11);
}

}  // namespace
}  // namespace onepass::cli
