// How rows are cut: the tiles that stay in L1, and the pieces that threads share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/integers.hpp"
#include "rows/args.hpp"

namespace onepass {

// Elements a kernel works on at a time: a few f32 tiles fit in any L1.
inline constexpr std::int64_t kTile = 1024;

// Pieces and tiles begin at multiples of this many elements: a cache line or more of any dtype.
inline constexpr std::int64_t kGrain = 64;

// What a thread leaves of a piece for the others to merge.
inline constexpr std::size_t kSlotBytes = 64;

// Columns a piece can have at most.
constexpr std::int64_t piece_cols(std::int64_t cols, int split) {
  return round_up(ceil_div(cols, split), kGrain);
}

// Piece i of `split` of a range.
constexpr Columns piece(Columns range, int split, int i) {
  const std::int64_t size = piece_cols(range.end - range.begin, split);
  const std::int64_t begin = std::min(range.begin + i * size, range.end);
  return {begin, std::min(begin + size, range.end)};
}

// Calls body(begin, count, index) for each tile of a range. `skew` is how far the output's column 0
// lies past an aligned address, in elements: all tiles but the first begin at an aligned one.
template <class Body>
inline void for_each_tile(Columns range, std::int64_t skew, Body body) {
  std::size_t index = 0;
  for (std::int64_t c = range.begin; c < range.end; ++index) {
    const std::int64_t next = std::min(range.end, c + kTile - (skew + c) % kGrain);
    body(c, static_cast<std::size_t>(next - c), index);
    c = next;
  }
}

constexpr std::int64_t most_tiles(std::int64_t cols) { return cols / (kTile - kGrain + 1) + 2; }

// Elements a worker keeps of one piece: the weights, with room for a beginning that is not aligned,
// and a maximum for each tile.
constexpr std::int64_t kept_weights(std::int64_t cols, int split) {
  return piece_cols(cols, split) + kGrain;
}

// Which of them belongs to column c of a piece: tiles begin aligned here as they do in the output.
constexpr std::int64_t kept_at(Columns range, std::int64_t skew, std::int64_t c) {
  return (skew + range.begin) % kGrain + c - range.begin;
}

constexpr std::int64_t kept_elements(std::int64_t cols, int split) {
  return round_up(kept_weights(cols, split) + most_tiles(piece_cols(cols, split)), kGrain);
}

}  // namespace onepass
