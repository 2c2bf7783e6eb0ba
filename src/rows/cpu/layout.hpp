// How rows are divided: into tiles that stay in L1, and into pieces for the threads that share a
// row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/integers.hpp"
#include "rows/args.hpp"

namespace onepass {

// The elements of a tile: a few f32 tiles fit in any L1.
inline constexpr std::int64_t kTile = 1024;

// Pieces and tiles begin at multiples of this many elements: a cache line or more of any dtype.
inline constexpr std::int64_t kGrain = 64;

// The bytes of a slot in which a thread leaves a piece's partial for the others to merge.
inline constexpr std::size_t kSlotBytes = 64;

// The most columns that a piece can have.
constexpr std::int64_t piece_cols(std::int64_t cols, int split) {
  return round_up(ceil_div(cols, split), kGrain);
}

// Piece i of `split` of a range.
constexpr Columns piece(Columns range, int split, int i) {
  const std::int64_t size = piece_cols(range.end - range.begin, split);
  const std::int64_t begin = std::min(range.begin + i * size, range.end);
  return {begin, std::min(begin + size, range.end)};
}

// Calls body(begin, count, index) for each tile of a range. `skew` is the distance of the output's
// column 0 from an aligned address, in elements: all tiles but the first begin aligned.
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

// The elements that a worker keeps of one piece: its weights, with room for an unaligned beginning,
// and a maximum per tile.
constexpr std::int64_t kept_weights(std::int64_t cols, int split) {
  return piece_cols(cols, split) + kGrain;
}

// The index of column c's weight: tiles are aligned here as they are in the output.
constexpr std::int64_t kept_at(Columns range, std::int64_t skew, std::int64_t c) {
  return (skew + range.begin) % kGrain + c - range.begin;
}

constexpr std::int64_t kept_elements(std::int64_t cols, int split) {
  return round_up(kept_weights(cols, split) + most_tiles(piece_cols(cols, split)), kGrain);
}

}  // namespace onepass
