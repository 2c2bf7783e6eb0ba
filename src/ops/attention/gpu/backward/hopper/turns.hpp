// In which order the blocks of the Hopper backward go through tiles, and in which order their parts
// of a tile of dq are added. Host and device.
#pragma once

#include <cstdint>

#include "core/annotate.hpp"
#include "core/divisor.hpp"
#include "ops/attention/sight.hpp"

namespace onepass::ops::attention {

// A tile of keys, its column: the tiles of queries [first, end) that see one of its keys, each with
// every head that shares them. A step is a tile of queries of one head; heads go by first. The
// steps begin somewhere in the column and go round.
struct Column {
  int first = 0, end = 0;
  int start = 0;  // the step that is taken first

  ONEPASS_HD bool sees(int query_tile) const { return query_tile >= first && query_tile < end; }
};

// Blocks stay, and in every round each has a turn: one column of a kv head or, under a diagonal,
// two that are as long together as any other two. All blocks run at the same time, so a block may
// wait until another one has added its part: an earlier one in the order by round, step and place
// of the turn, which is all that the sums depend on.
//
// Starts are such that in a round the blocks of a head are at different tiles at every step, as
// long as there are tiles enough: then nobody waits.
template <int TileKeys, int TileQueries>
struct Turns {
  static constexpr int kKeys = TileKeys, kQueries = TileQueries;

  Divisor sharing;      // heads of q to each of k and v
  Divisor columns;      // of a kv head
  Divisor of_head;      // turns
  Divisor blocks;       // that run
  int turns = 0;        // of all heads
  bool cut = false;     // later columns are seen by fewer queries,
  bool paired = false;  // so that a turn has two

  Turns() = default;
  constexpr Turns(int heads_sharing, const Sight& most, int kv_heads, int most_blocks)
      : sharing(heads_sharing),
        columns(tiles_of(most.keys, kKeys)),
        cut(most.after >= 0),
        paired(cut && most.before < 0 && columns * kv_heads > most_blocks) {
    of_head = Divisor(paired ? (columns + 1) / 2 : int{columns});
    turns = of_head * kv_heads;
    blocks = Divisor(turns < most_blocks ? turns : most_blocks);
  }

  ONEPASS_HD static constexpr int tiles_of(int count, int tile) {
    return (count + tile - 1) / tile;
  }

  // How many columns a turn has, and which; the shorter one is the first.
  ONEPASS_HD int count(int place) const { return paired && 2 * place + 1 != columns ? 2 : 1; }
  ONEPASS_HD int key_tile(int place, int which) const {
    return paired && which == 0 ? columns - 1 - place : place;
  }

  ONEPASS_HD Column column(const Sight& sight, int place, int which) const {
    const int tile = key_tile(place, which);
    const QueryRange seeing = queries_seeing(sight, tile * kKeys, kKeys);
    Column column{seeing.begin / kQueries, (seeing.end + kQueries - 1) / kQueries, 0};
    if (seeing.begin >= seeing.end || tile * kKeys >= sight.keys) return {};
    const int tiles = column.end - column.first;
    if (!cut) {
      const std::int64_t skipped = std::int64_t{place} * tiles / std::int64_t{int{columns}};
      column.start = static_cast<int>(skipped) * sharing;
    } else if (which == 1) {
      column.start = second_start(column);
    }
    return column;
  }

  ONEPASS_HD int query_tiles(const Sight& sight) const { return tiles_of(sight.queries, kQueries); }

  // At twice as many tiles as it leaves out.
  ONEPASS_HD int second_start(const Column& column) const {
    const int tiles = column.end - column.first;
    return tiles > 0 ? column.first % tiles * sharing : 0;
  }

  ONEPASS_HD int steps(const Column& column) const { return (column.end - column.first) * sharing; }

  // When a column has a tile of queries of one head: 0 is its first step.
  ONEPASS_HD int step_of(const Column& column, int query_tile, int head) const {
    const int step = (query_tile - column.first) * sharing + head - column.start;
    return step < 0 ? step + steps(column) : step;
  }

  // The round that a turn of a kv head is in, and the head's turns [first, end) in it.
  ONEPASS_HD int round(int kv_head, int place) const {
    return (kv_head * of_head + place) / blocks;
  }
  ONEPASS_HD int first_of_round(int kv_head, int round) const {
    const int first = round * blocks - kv_head * of_head;
    return first > 0 ? first : 0;
  }
  ONEPASS_HD int end_of_round(int kv_head, int round) const {
    const int end = (round + 1) * blocks - kv_head * of_head;
    return end < of_head ? end : int{of_head};
  }

  // How many columns of a head's turns before `place` see a tile of queries.
  ONEPASS_HD int adders_of_turns_before(const Sight& sight, int place, int query_tile) const {
    const KeyTiles seen = key_tiles(sight, query_tile * kQueries, kQueries, kKeys);
    const auto in = [&](int begin, int end) {
      const int from = begin > seen.begin ? begin : seen.begin;
      const int to = end < seen.end ? end : seen.end;
      return to > from ? to - from : 0;
    };
    return in(0, place) + (paired ? in(columns - place, columns) : 0);
  }
};

// A turn that is under way at the same time, in the 4 bytes that shared memory has left for it:
// which of its columns add to a tile of queries before a step of another turn's does.
class Rival {
 public:
  static constexpr int kMostTiles = 0xFFFF;  // of queries

  Rival() = default;
  template <class Turns>
  ONEPASS_HD Rival(const Turns& turns, const Sight& sight, int place) {
    const Column column = turns.column(sight, place, 0);
    if (turns.paired) {  // both columns end with the last tile
      const bool both = turns.count(place) == 2;
      const Column second = both ? turns.column(sight, place, 1) : Column{};
      set(begin_of(turns, sight, column), begin_of(turns, sight, second));
    } else if (turns.cut) {
      set(column.first, column.end);
    } else {  // the first tile is 0
      set(column.end, column.start / turns.sharing);
    }
  }

  // How many: 0, 1 or 2.
  template <class Turns>
  ONEPASS_HD int adds_before(const Turns& turns, const Sight& sight, bool earlier_place, int step,
                             int query_tile, int head) const {
    const auto counts = [&](const Column& column, int steps_before) {
      if (!column.sees(query_tile)) return 0;
      const int at = steps_before + turns.step_of(column, query_tile, head);
      return at < step || (at == step && earlier_place) ? 1 : 0;
    };
    if (!turns.paired) {
      return counts(turns.cut ? Column{one_, other_, 0} : Column{0, one_, other_ * turns.sharing},
                    0);
    }
    const int end = turns.query_tiles(sight);
    const Column column{one_, end, 0};
    Column second{other_, end, 0};
    second.start = turns.second_start(second);
    return counts(column, 0) + counts(second, turns.steps(column));
  }

 private:
  template <class Turns>
  ONEPASS_HD static int begin_of(const Turns& turns, const Sight& sight, const Column& column) {
    return column.end > column.first ? column.first : turns.query_tiles(sight);
  }
  ONEPASS_HD void set(int one, int other) {
    one_ = static_cast<std::uint16_t>(one);
    other_ = static_cast<std::uint16_t>(other);
  }

  std::uint16_t one_ = 0, other_ = 0;
};

// A block's way through one column.
class Steps {
 public:
  template <class Turns>
  ONEPASS_HD Steps(const Turns& turns, const Column& column)
      : column_(column),
        sharing_(turns.sharing),
        left_(turns.steps(column)),
        query_tile_(column.first + column.start / turns.sharing),
        head_(column.start % turns.sharing) {}

  ONEPASS_HD int left() const { return left_; }
  ONEPASS_HD int query_tile() const { return query_tile_; }
  ONEPASS_HD int head() const { return head_; }  // among those that share the keys

  ONEPASS_HD void advance() {
    --left_;
    if (++head_ < sharing_) return;
    head_ = 0;
    if (++query_tile_ == column_.end) query_tile_ = column_.first;
  }

 private:
  Column column_;
  int sharing_;
  int left_;
  int query_tile_, head_;
};

}  // namespace onepass::ops::attention
