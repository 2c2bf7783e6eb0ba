// Which keys a tile of queries sees: the part of attention on a GPU that tests need no GPU for.
// Host and device.
#pragma once

#include <cstdint>
#include <limits>

#include "core/annotate.hpp"

namespace onepass {

// Kernels count rows, keys and blocks with 31 bits, and add two such numbers.
inline constexpr std::int64_t kMost32 = std::numeric_limits<int>::max() / 2;

}  // namespace onepass

namespace onepass::ops::attention {

// By value: the references of std::clamp would put the operands in a kernel's local memory.
ONEPASS_HD constexpr int between(int low, int x, int high) {
  const int capped = x < high ? x : high;
  return capped > low ? capped : low;
}

// The keys that causal and window masks leave visible to each query of a sequence.
struct Sight {
  int queries = 0, keys = 0;
  // Keys before and after its own that a query sees; −1: all. Causal: none after.
  int before = -1, after = -1;

  ONEPASS_HD int own(int query) const { return query + keys - queries; }
  ONEPASS_HD int begin(int query) const {
    return before < 0 ? 0 : between(0, own(query) - before, keys);
  }
  ONEPASS_HD int end(int query) const {
    return after < 0 ? keys : between(0, own(query) + 1 + after, keys);
  }
};

// The queries [begin, end) that see one of some keys.
struct QueryRange {
  int begin, end;
};

ONEPASS_HD constexpr QueryRange queries_seeing(const Sight& sight, int first_key, int count) {
  const int past = between(0, first_key + count, sight.keys);
  const int begin = sight.after < 0 ? 0 : first_key - sight.keys + (sight.queries - sight.after);
  const int end =
      sight.before < 0 ? sight.queries : past - sight.keys + sight.before + sight.queries;
  const int from = between(0, begin, sight.queries);
  return {from, between(from, end, sight.queries)};
}

// For some queries: the keys [begin, end) that all of them see, and `past`, from which on none of
// them sees a key.
struct SightOfRows {
  int begin, end;
  int past;

  // Whether all queries see all of `count` keys from `first` on.
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

  // The tiles that belong to one of several parts of `tiles` tiles each.
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

}  // namespace onepass::ops::attention
