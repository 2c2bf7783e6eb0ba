// In which order the blocks of the Hopper kernel take tiles of queries. Host and device.
#pragma once

#include "core/annotate.hpp"
#include "core/divisor.hpp"

namespace onepass::ops::attention {

// The tiles of queries of all heads, in the order in which blocks take them. Those of one head
// follow each other: blocks that run side by side read the same keys, and L2 has them.
//
// Where a diagonal cuts the keys, later tiles have more of them. Most come in pairs: the last of a
// head with its first, the one before it with its second. Any pair has as many keys as any other,
// so that blocks which take the same number of pairs are done at the same time. What is left then,
// pairs that are not enough for all blocks and the tiles in the middle of heads, goes one by one,
// the longest first. A round of pairs or two that are left as well even it out: the tiles of all
// heads that are left are under way at a time, so there must be room for their keys in L2.
struct Schedule {
  int query_tiles = 0;
  int heads = 0;            // of all batches
  bool paired = false;      // a turn is two tiles, up to
  int dealt = 0;            // so many turns; all after them are one tile
  int turns = 0;            // in all
  Divisor turns_of_head;    // of those that are dealt
  int head = 0, place = 0;  // of the first pair that is not

  Schedule() = default;
  constexpr Schedule(int tiles, int all_heads)
      : query_tiles(tiles),
        heads(all_heads),
        dealt(tiles * all_heads),
        turns(dealt),
        turns_of_head(tiles) {}

  // Under a diagonal. Of the rounds in which all blocks have a pair, so many are not dealt, or with
  // −1 even the one in which only some have.
  static constexpr Schedule in_pairs(int tiles, int all_heads, int blocks, int rounds_left) {
    Schedule s(tiles, all_heads);
    if (tiles == 1) return s;
    s.paired = true;
    s.turns_of_head = Divisor(tiles / 2);
    const int pairs = all_heads * (tiles / 2);
    const int rounds = pairs / blocks - rounds_left;
    s.dealt = rounds > pairs / blocks ? pairs : rounds > 0 ? rounds * blocks : 0;
    s.turns -= s.dealt;
    s.head = s.dealt / s.turns_of_head;
    s.place = s.dealt % s.turns_of_head;
    return s;
  }
};

struct Work {
  int head;  // of all batches
  int query_tile;

  bool operator==(const Work&) const = default;
};

// Of what is left after the pairs.
ONEPASS_HD inline Work left_over(const Schedule& s, int number) {
  for (int shorter = 0;; ++shorter) {
    const int tile = s.query_tiles - 1 - shorter;
    const int place = shorter < tile ? shorter : tile;
    const int first = shorter == tile ? 0 : place < s.place ? s.head + 1 : s.head;
    if (number < s.heads - first) return {first + number, tile};
    number -= s.heads - first;
  }
}

// One block's way through the schedule: a turn of each round. Each round begins with another block,
// so that turns which are a little longer go round. Rounds of single tiles go back and forth: who
// had the longest of one has the shortest of the next.
class Walk {
 public:
  ONEPASS_HD Walk(const Schedule& schedule, int block, int blocks)
      : schedule_(schedule), blocks_(blocks), own_(block) {}

  ONEPASS_HD bool done() const { return round_ + own_ >= schedule_.turns; }

  ONEPASS_HD Work work() const {
    const int turn = round_ + own_;
    if (turn >= schedule_.dealt) return left_over(schedule_, turn - schedule_.dealt);
    const int place = turn % schedule_.turns_of_head;
    return {turn / schedule_.turns_of_head, second_ ? place : schedule_.query_tiles - 1 - place};
  }

  ONEPASS_HD void advance() {
    second_ = !second_ && schedule_.paired && round_ + own_ < schedule_.dealt;
    if (second_) return;
    const bool single = round_ >= schedule_.dealt;
    round_ += blocks_;
    own_ = single ? blocks_ - 1 - own_ : own_ + 1 == blocks_ ? 0 : own_ + 1;
  }

 private:
  const Schedule& schedule_;
  int blocks_;
  int round_ = 0;  // its first turn
  int own_;        // the block's, from there
  bool second_ = false;
};

}  // namespace onepass::ops::attention
