// What a worker of cpu_flash keeps, in floats: a tile of rows, a block of keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onepass {

inline constexpr std::int64_t kFlashRows = 64;  // rows a tile: what a block of keys is read for
inline constexpr std::int64_t kFlashKeys = 64;  // keys a block: with its values, half of an L1

struct FlashLayout {
  explicit constexpr FlashLayout(int dim) : dim(dim), padded((dim + 15) / 16 * 16) {}

  int dim;
  int padded;  // to whole vectors of any instruction set

  static constexpr std::size_t kScores = kFlashRows * (kFlashKeys + 8);  // keys go in groups
  constexpr std::size_t queries() const { return kFlashRows * static_cast<std::size_t>(dim); }
  constexpr std::size_t sums() const { return kFlashRows * static_cast<std::size_t>(padded); }
  constexpr std::size_t block() const { return kFlashKeys * static_cast<std::size_t>(padded); }
  // Queries, sums, keys, values, scores, and masks of as many.
  constexpr std::size_t floats() const { return queries() + sums() + 2 * block() + 4 * kScores; }
  constexpr std::size_t bytes() const { return floats() * sizeof(float); }
};

}  // namespace onepass
