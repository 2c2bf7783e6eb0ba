// Which rows the kernels for whole packs may take.
// Not under sanitizers: plans are pure functions.
#include "rows/gpu/flat.hpp"

#include <gtest/gtest.h>

namespace onepass {
namespace {

alignas(16) std::byte memory[64];

Operand operand(DType dtype, std::int64_t stride, std::ptrdiff_t offset = 0) {
  Operand o{.data = memory + offset, .dtype = dtype, .col_stride = 1};
  o.row_strides[0] = stride;
  return o;
}

constexpr RowSpace kSpace{.rows = 7, .cols = 24, .rank = 1, .extent = {7}};

TEST(FlatTest, RowsInPacksBeginAndEndWithOne) {
  EXPECT_TRUE(in_packs(kSpace, operand(DType::f32, 24)));
  EXPECT_TRUE(in_packs(kSpace, operand(DType::f16, 32, 16)));
  EXPECT_FALSE(in_packs(kSpace, operand(DType::f32, 24, 4))) << "begins inside a pack";
  EXPECT_FALSE(in_packs(kSpace, operand(DType::f32, 26))) << "the second row does";
  EXPECT_FALSE(in_packs(kSpace, operand(DType::f16, 28))) << "a pack of 16 bits has eight";
  EXPECT_TRUE(in_packs(kSpace, operand(DType::f32, 28)));

  RowSpace odd = kSpace;
  odd.cols = 20;
  EXPECT_TRUE(in_packs(odd, operand(DType::f32, 24)));
  EXPECT_FALSE(in_packs(odd, operand(DType::bf16, 24))) << "ends inside a pack";
}

TEST(FlatTest, OnlyRowsAtOneDistanceOfNeighbours) {
  RowSpace two = kSpace;
  two.rank = 2;
  EXPECT_FALSE(in_packs(two, operand(DType::f32, 24)));

  Operand apart = operand(DType::f32, 48);
  apart.col_stride = 2;
  EXPECT_FALSE(in_packs(kSpace, apart));

  RowSpace one = kSpace;
  one.rows = 1;
  EXPECT_TRUE(in_packs(one, operand(DType::f32, 1))) << "nobody goes to a second row";
}

}  // namespace
}  // namespace onepass
