// The arithmetic of rows on a GPU: packs of 16 bytes, whole warps, and blocks within the limits of
// a launch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/integers.hpp"
#include "onepass/tensor.hpp"
#include "rows/args.hpp"

namespace onepass {

inline constexpr int kWarp = 32;

// The widest access of a thread. Kernels read packs at multiples of 16 bytes, so an unaligned row
// touches one pack more.
inline constexpr int kPackBytes = 16;

constexpr int pack_lanes(DType dtype) { return kPackBytes / static_cast<int>(size_of(dtype)); }

// A row of any kind is taken in as many elements at a time for every dtype that is computed in
// float: one kernel reads them all. These are its packs, of up to two accesses.
constexpr int any_lanes(DType dtype) { return dtype == DType::f64 ? 2 : 8; }

// The most of them that a row can touch. `aligned` rows begin at a multiple of 16 bytes.
constexpr std::int64_t most_any_packs(std::int64_t cols, DType dtype, bool aligned = false) {
  return cols == 0 ? 0 : ceil_div(cols + (aligned ? 0 : pack_lanes(dtype) - 1), any_lanes(dtype));
}

// The most packs that a row can touch. `aligned` rows begin with a pack.
constexpr std::int64_t most_packs(std::int64_t cols, DType dtype, bool aligned = false) {
  const int lanes = pack_lanes(dtype);
  return cols == 0 ? 0 : ceil_div(cols + (aligned ? 0 : lanes - 1), lanes);
}

// Whether an operand's rows consist of whole packs, at one distance from each other.
inline bool in_packs(const RowSpace& space, const Operand& operand) {
  const int lanes = pack_lanes(operand.dtype);
  return space.rank <= 1 && operand.col_stride == 1 && space.cols % lanes == 0 &&
         (space.rows == 1 || operand.row_strides[0] % lanes == 0) &&
         reinterpret_cast<std::uintptr_t>(operand.data) % kPackBytes == 0;
}

// Whole warps, as many as `wanted` threads need, up to `most`.
constexpr int whole_warps(std::int64_t wanted, int most) {
  return static_cast<int>(std::clamp<std::int64_t>(round_up(wanted, kWarp), kWarp, most));
}

// One block per item, up to the limit of a launch; beyond it a block takes several items.
inline constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

constexpr std::int64_t blocks_for(std::int64_t items) {
  return std::clamp<std::int64_t>(items, 1, kMostBlocks);
}

}  // namespace onepass
