// Where rows of outputs and of a row's own values lie: anywhere, or, in the kernels compiled for
// the usual call, at one stride. Finding a row of any rank takes divisions, and hundreds of bytes
// of arguments to be fetched.
#pragma once

#include "ops/select/args.hpp"

namespace onepass::ops::select {

struct FlatPlace {
  std::byte* data = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t col_stride = 0;
  DType dtype = DType::f32;

  ONEPASS_HD explicit operator bool() const { return data != nullptr; }
};

struct FlatSpace {
  std::int64_t cols;
};

template <class Place>
using SpaceOf = std::conditional_t<std::is_same_v<Place, Operand>, RowSpace, FlatSpace>;

// One value for all rows, or one a row.
template <class T, class Place>
struct EachRowAt {
  T value;
  Place rows;
};

template <class Place>
Place place_of(const Operand& operand) {
  if constexpr (std::is_same_v<Place, Operand>) {
    return operand;
  } else {
    return {static_cast<std::byte*>(operand.data),
            operand.row_strides[0] * static_cast<std::int64_t>(size_of(operand.dtype)),
            operand.col_stride, operand.dtype};
  }
}

template <class Place>
SpaceOf<Place> space_of(const RowSpace& space) {
  if constexpr (std::is_same_v<Place, Operand>) {
    return space;
  } else {
    return {space.cols};
  }
}

template <class Place, class T>
EachRowAt<T, Place> each_row_at(const EachRow<T>& each) {
  return {each.value, place_of<Place>(each.rows)};
}

// The address of a row.
__device__ inline void* address_of(const RowSpace& space, const Operand& operand,
                                   std::int64_t row) {
  return row_data(space, operand, row);
}
__device__ inline void* address_of(const FlatSpace&, const FlatPlace& place, std::int64_t row) {
  return place.data + row * place.row_bytes;
}

template <class T, class Place>
__device__ inline T value_for(const SpaceOf<Place>& space, const EachRowAt<T, Place>& each,
                              std::int64_t row) {
  return each.rows ? read_one<T>(address_of(space, each.rows, row), each.rows.dtype) : each.value;
}

}  // namespace onepass::ops::select
