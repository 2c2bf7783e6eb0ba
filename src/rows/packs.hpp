// Rows as a GPU reads them, in numbers: packs of 16 bytes, whole warps, blocks that a
// launch can count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/integers.hpp"
#include "onepass/tensor.hpp"
#include "rows/args.hpp"

namespace onepass {

inline constexpr int kWarp = 32;

// The widest access a thread has. Rows are read in packs that lie at multiples of 16 in memory, so
// a row that begins between two of them touches one more.
inline constexpr int kPackBytes = 16;

constexpr int pack_lanes(DType dtype) { return kPackBytes / static_cast<int>(size_of(dtype)); }

// Most packs that a row can touch; `aligned` rows begin with a pack.
constexpr std::int64_t most_packs(std::int64_t cols, DType dtype, bool aligned = false) {
  const int lanes = pack_lanes(dtype);
  return cols == 0 ? 0 : ceil_div(cols + (aligned ? 0 : lanes - 1), lanes);
}

// Whether an operand's rows begin and end with a pack, and lie at one distance from each other.
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

// One block an item; a block that finds more items than there may be blocks takes several.
inline constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

constexpr std::int64_t blocks_for(std::int64_t items) {
  return std::clamp<std::int64_t>(items, 1, kMostBlocks);
}

}  // namespace onepass
