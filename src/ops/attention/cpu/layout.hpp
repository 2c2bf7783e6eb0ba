// The scratch memory of a thread of cpu_flash, in floats: a tile of rows, a block of keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onepass {

inline constexpr std::int64_t kFlashRows = 64;  // rows per tile, which share a block of keys
inline constexpr std::int64_t kFlashKeys = 64;  // keys per block: with its values, half of an L1

struct FlashLayout {
  explicit constexpr FlashLayout(int dim) : dim(dim), padded((dim + 15) / 16 * 16) {}

  int dim;
  int padded;  // dim in whole vectors of any instruction set

  static constexpr std::size_t kScores = kFlashRows * (kFlashKeys + 8);  // keys come in groups
  constexpr std::size_t queries() const { return kFlashRows * static_cast<std::size_t>(dim); }
  constexpr std::size_t sums() const { return kFlashRows * static_cast<std::size_t>(padded); }
  constexpr std::size_t block() const { return kFlashKeys * static_cast<std::size_t>(padded); }
  // Queries, sums, keys, values, scores, and masks as large as the scores.
  constexpr std::size_t floats() const { return queries() + sums() + 2 * block() + 4 * kScores; }
  constexpr std::size_t bytes() const { return floats() * sizeof(float); }
};

}  // namespace onepass
