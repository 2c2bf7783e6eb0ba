// What a piece of a row leaves for the whole: its candidates, the race so far, how many come before
// the target, and a State for each chunk. Chunks are the same whichever thread folds them and merge
// in their order, so that the result does not depend on how the row was cut.
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "core/long_state.hpp"
#include "ops/select/args.hpp"
#include "ops/select/cpu/best.hpp"
#include "rows/cpu/layout.hpp"

namespace onepass {

inline constexpr std::int64_t kChunk = 4 * kTile;

// Piece i of `split` of a range, in whole chunks.
constexpr Columns chunk_piece(Columns range, int split, int i) {
  const std::int64_t size = round_up(ceil_div(range.end - range.begin, split), kChunk);
  const std::int64_t begin = std::min(range.begin + i * size, range.end);
  return {begin, std::min(begin + size, range.end)};
}

constexpr Candidate<double> no_winner() {
  return {-std::numeric_limits<double>::infinity(), std::numeric_limits<std::int64_t>::max()};
}

template <class T>
struct Piece {
  explicit Piece(std::int64_t k) : best(k) {}

  // Empty again, for another row, in the same memory.
  void restart(std::int64_t k) {
    best.restart(k);
    states.clear();
    winner = no_winner();
    rank = 0;
  }

  Best<T> best;
  std::vector<State<T>> states;  // one a chunk
  Candidate<double> winner = no_winner();
  std::int64_t rank = 0;

  // Of the row, and its m the maximum, which filters go by.
  LongState state() const {
    LongState row;
    T m = minus_infinity<T>();
    for (const State<T>& chunk : states) {
      row = merge(row, LongState(chunk));
      m = std::max(m, chunk.m);
    }
    return merge(LongState(static_cast<double>(m), 0), row);
  }
};

// The pieces of one row, in memory that a team shares.
template <class T>
class PieceTable {
 public:
  // Bytes a piece takes, with K candidates of a row cut into `split`.
  static constexpr std::size_t bytes(std::int64_t cols, std::int64_t k, int split) {
    const std::int64_t chunks = ceil_div(cols, kChunk) / split + 2;
    return static_cast<std::size_t>(
        round_up(static_cast<std::int64_t>(sizeof(Header)) +
                     chunks * static_cast<std::int64_t>(sizeof(State<T>)) +
                     k * static_cast<std::int64_t>(sizeof(Candidate<T>)),
                 64));
  }

  PieceTable(std::byte* memory, int pieces, std::size_t stride)
      : memory_(memory), pieces_(pieces), stride_(stride) {}

  void put(int i, Piece<T>& piece) {
    const std::vector<Candidate<T>>& candidates = piece.best.sorted();
    std::byte* at = place(i);
    const Header header{piece.winner, piece.rank, piece.states.size(), candidates.size()};
    std::memcpy(at, &header, sizeof header);
    at += sizeof header;
    for (const State<T>& state : piece.states) at = append(at, state);
    for (const Candidate<T>& candidate : candidates) at = append(at, candidate);
  }

  // In the order of the pieces.
  void gather(Piece<T>& whole) const {
    for (int i = 0; i < pieces_; ++i) {
      const std::byte* at = place(i);
      Header header;
      at = take(at, header);
      if (header.winner < whole.winner) whole.winner = header.winner;
      whole.rank += header.rank;
      for (std::size_t s = 0; s < header.states; ++s) {
        State<T> state;
        at = take(at, state);
        whole.states.push_back(state);
      }
      for (std::size_t c = 0; c < header.candidates; ++c) {
        Candidate<T> candidate;
        at = take(at, candidate);
        whole.best.offer(candidate.z, candidate.index);
      }
    }
  }

 private:
  struct Header {
    Candidate<double> winner;
    std::int64_t rank;
    std::size_t states, candidates;
  };

  template <class Value>
  static std::byte* append(std::byte* at, const Value& value) {
    std::memcpy(at, &value, sizeof value);
    return at + sizeof value;
  }
  template <class Value>
  static const std::byte* take(const std::byte* at, Value& value) {
    std::memcpy(&value, at, sizeof value);
    return at + sizeof value;
  }

  std::byte* place(int i) const { return memory_ + static_cast<std::size_t>(i) * stride_; }

  std::byte* memory_;
  int pieces_;
  std::size_t stride_;
};

}  // namespace onepass
