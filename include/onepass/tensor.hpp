// Tensor: a view of memory that the caller owns. Pointer, dtype, shape, strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>

namespace onepass {

enum class DType : std::uint8_t { f32, f16, bf16, f64, u8, i32, i64 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::u8: return "u8";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f64;
}

inline constexpr int kMaxRank = 8;

// Strides count elements, not bytes; by default they are those of a dense C-order array. A
// default-constructed tensor is absent: pass one to leave out an optional argument.
template <class Void>
struct BasicTensor {
  using Extents = std::array<std::int64_t, kMaxRank>;

  Void* data = nullptr;
  DType dtype = DType::f32;
  int rank = -1;
  Extents shape{};
  Extents strides{};

  BasicTensor() = default;

  BasicTensor(Void* pointer, DType type, std::span<const std::int64_t> extents,
              std::span<const std::int64_t> steps = {})
      : data(pointer), dtype(type), rank(static_cast<int>(extents.size())) {
    // Copies what fits. The op that gets this tensor reports too many dimensions, or strides that
    // do not match the shape.
    const std::size_t stored = extents.size() < kMaxRank ? extents.size() : kMaxRank;
    for (std::size_t i = 0; i < stored; ++i) shape[i] = extents[i];
    if (steps.size() == extents.size()) {
      for (std::size_t i = 0; i < stored; ++i) strides[i] = steps[i];
      return;
    }
    if (!steps.empty()) rank = kMaxRank + 1;
    std::uint64_t dense = 1;  // unsigned: an overflowing shape wraps here and is reported later
    for (std::size_t i = stored; i-- > 0;) {
      strides[i] = static_cast<std::int64_t>(dense);
      dense *= static_cast<std::uint64_t>(extents[i]);
    }
  }

  BasicTensor(Void* pointer, DType type, std::initializer_list<std::int64_t> extents,
              std::initializer_list<std::int64_t> steps = {})
      : BasicTensor(pointer, type, std::span(extents.begin(), extents.size()),
                    std::span(steps.begin(), steps.size())) {}

  // A Tensor converts to a ConstTensor.
  template <class Other, class = std::enable_if_t<std::is_same_v<const Other, Void>>>
  BasicTensor(const BasicTensor<Other>& other)
      : data(other.data),
        dtype(other.dtype),
        rank(other.rank),
        shape(other.shape),
        strides(other.strides) {}

  bool present() const { return rank >= 0; }
};

using Tensor = BasicTensor<void>;
using ConstTensor = BasicTensor<const void>;

}  // namespace onepass
