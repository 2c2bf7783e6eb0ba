// The scratch memory of a thread of cpu_flash, in elements of the computing type: a tile of rows, a
// block of keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/integers.hpp"

namespace onepass {

inline constexpr std::int64_t kFlashRows = 64;  // rows per tile, which share a block of keys
inline constexpr std::int64_t kFlashKeys = 64;  // keys per block: with its values, half of an L1

struct FlashLayout {
  constexpr FlashLayout(int dim, int dim_v)
      : dim(dim), padded(round_up(dim, 16)), padded_v(round_up(dim_v, 16)) {}

  int dim;
  int padded, padded_v;  // dims in whole vectors of any instruction set

  static constexpr std::size_t kScores = kFlashRows * (kFlashKeys + 8);  // keys come in groups
  constexpr std::size_t queries() const { return kFlashRows * static_cast<std::size_t>(dim); }
  constexpr std::size_t sums() const { return kFlashRows * static_cast<std::size_t>(padded_v); }
  constexpr std::size_t keys() const { return kFlashKeys * static_cast<std::size_t>(padded); }
  constexpr std::size_t values() const { return kFlashKeys * static_cast<std::size_t>(padded_v); }
  // Queries, sums, keys, values, scores, and masks as large as the scores.
  constexpr std::size_t elements() const {
    return queries() + sums() + keys() + values() + 4 * kScores;
  }
};

}  // namespace onepass
