// What of attention on a GPU can be known without one: which keys a tile of queries sees, and in which order the
// tiles are worked on. Host and device.
#pragma once

#include "core/annotate.hpp"
#include "core/divisor.hpp"

namespace onepass::attention_tiles {

// By value: what std::clamp refers to, a kernel would have in memory.
ONEPASS_HD constexpr int between(int low, int x, int high) {
  const int capped = x < high ? x : high;
  return capped > low ? capped : low;
}

// The keys that the masks by place leave to each query of a sequence.
struct Sight {
  int queries = 0, keys = 0;
  int before = -1,
      after = -1;  // keys beside a query's own that it sees; −1: all. Causal: none after.

  ONEPASS_HD int own(int query) const { return query + keys - queries; }
  ONEPASS_HD int begin(int query) const {
    return before < 0 ? 0 : between(0, own(query) - before, keys);
  }
  ONEPASS_HD int end(int query) const {
    return after < 0 ? keys : between(0, own(query) + 1 + after, keys);
  }
};

// Of some queries: the keys that all of them see, and the first after the last that any does.
struct SightOfRows {
  int begin, end;
  int past;

  // Of so many keys from `first` on.
  ONEPASS_HD bool by_all(int first, int count) const {
    return first >= begin && first + count <= end;
  }
  ONEPASS_HD bool by_none(int first) const { return first >= past; }
};

ONEPASS_HD inline SightOfRows of_rows(const Sight& sight, int first_query, int rows) {
  const int last = between(0, first_query + rows, sight.queries) - 1;
  return {sight.begin(last), sight.end(first_query), sight.end(last)};
}

// Tiles of keys that some query of a tile sees: [begin, end). All queries see all keys of those in
// [whole_begin, whole_end).
struct KeyTiles {
  int begin, end;
  int whole_begin, whole_end;

  ONEPASS_HD bool whole(int tile) const { return tile >= whole_begin && tile < whole_end; }

  // Those of them that one of several parts has, each with so many tiles.
  ONEPASS_HD KeyTiles of_part(int part, int tiles) const {
    const int first = part * tiles;
    const int from = begin > first ? begin : first;
    const int to = end < first + tiles ? end : first + tiles;
    return {from, to > from ? to : from, whole_begin, whole_end};
  }
  bool operator==(const KeyTiles&) const = default;
};

ONEPASS_HD inline KeyTiles key_tiles(const Sight& sight, int first_query, int rows, int tile_keys) {
  const SightOfRows seen = of_rows(sight, first_query, rows);
  const int begin = sight.begin(first_query);
  if (begin >= seen.past) return {0, 0, 0, 0};
  const int up = tile_keys - 1;
  return {begin / tile_keys, (seen.past + up) / tile_keys, (seen.begin + up) / tile_keys,
          seen.end / tile_keys};
}

// The tiles of queries of all heads. Those of one head follow each other: blocks that run side by side read the same
// keys, and L2 has them. Where a diagonal cuts the keys, they come in pairs: the last of a head with its first, the
// one before it with its second. Any pair has as many keys as any other, so that blocks that take the same number of
// pairs are done at the same time. A head with an odd number has one tile alone; that the blocks take turns at these,
// each round begins with another block.
struct Schedule {
  int query_tiles = 0;
  int heads = 0;  // of all batches
  bool paired = false;
  Divisor turns_of_head;  // what a block takes at a time: a tile or a pair

  Schedule() = default;
  constexpr Schedule(int tiles, int all_heads, bool in_pairs)
      : query_tiles(tiles),
        heads(all_heads),
        paired(in_pairs),
        turns_of_head(in_pairs ? (tiles + 1) / 2 : tiles) {}

  ONEPASS_HD int turns() const { return heads * turns_of_head; }
};

struct Work {
  int head;  // of all batches
  int query_tile;

  bool operator==(const Work&) const = default;
};

// One block's way through the schedule.
class Walk {
 public:
  ONEPASS_HD Walk(const Schedule& schedule, int block, int blocks)
      : schedule_(schedule), blocks_(blocks), own_(block) {
    skip_missing();
  }

  ONEPASS_HD bool done() const { return round_ >= schedule_.turns(); }

  ONEPASS_HD Work work() const {
    const int turn = round_ + own_;
    const int place = turn % schedule_.turns_of_head;
    return {turn / schedule_.turns_of_head, second_ ? place : schedule_.query_tiles - 1 - place};
  }

  ONEPASS_HD void advance() {
    const int place = (round_ + own_) % schedule_.turns_of_head;
    const bool alone = !schedule_.paired || 2 * place == schedule_.query_tiles - 1;
    second_ = !second_ && !alone;
    if (second_) return;
    next_round();
    skip_missing();
  }

 private:
  ONEPASS_HD void next_round() {
    round_ += blocks_;
    own_ = own_ + 1 == blocks_ ? 0 : own_ + 1;
  }
  // The last round may have nothing for this block.
  ONEPASS_HD void skip_missing() {
    if (!done() && round_ + own_ >= schedule_.turns()) next_round();
  }

  const Schedule& schedule_;
  int blocks_;
  int round_ = 0;  // its first turn
  int own_;        // the block's, from there
  bool second_ = false;
};

}  // namespace onepass::attention_tiles
