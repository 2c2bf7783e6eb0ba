// How the work of an attention is cut. Query heads that share a kv head share its keys, so that the
// rows of one (sequence, kv head) are its queries times those heads: row r is query r / group of
// head r % group among them.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/attention/args.hpp"

namespace onepass {

struct RowTile {
  std::int64_t batch, kv_head;
  Sequence sequence;
  std::int64_t first, rows;  // of the rows of (batch, kv_head)
};

// All rows in tiles of at most `tile_rows`, those of a kv head after each other, the last rows
// first: where a causal mask makes them different, the longest are not left for the end.
class RowTiles {
 public:
  RowTiles(const AttentionArgs& args, std::int64_t tile_rows)
      : args_(args),
        group_(args.kv_heads == 0 ? 1 : args.heads / args.kv_heads),
        tile_rows_(tile_rows) {
    first_.reserve(static_cast<std::size_t>(args.batch) + 1);
    first_.push_back(0);
    for (std::int64_t b = 0; b < args.batch; ++b) {
      first_.push_back(first_.back() + tiles_of(sequence_of(args, b)) * args.kv_heads);
    }
  }

  std::int64_t count() const { return first_.back(); }
  std::int64_t group() const { return group_; }

  RowTile at(std::int64_t i) const {
    const auto past = std::upper_bound(first_.begin(), first_.end(), i);
    const std::int64_t b = past - first_.begin() - 1;
    const Sequence s = sequence_of(args_, b);
    const std::int64_t local = i - first_[static_cast<std::size_t>(b)];
    const std::int64_t tiles = tiles_of(s);
    const std::int64_t first = (tiles - 1 - local % tiles) * tile_rows_;
    return {b, local / tiles, s, first, std::min(tile_rows_, s.queries * group_ - first)};
  }

  std::int64_t query(const RowTile& t, std::int64_t row) const { return (t.first + row) / group_; }
  std::int64_t head(const RowTile& t, std::int64_t row) const {
    return t.kv_head * group_ + (t.first + row) % group_;
  }

 private:
  std::int64_t tiles_of(const Sequence& s) const {
    return (s.queries * group_ + tile_rows_ - 1) / tile_rows_;
  }

  const AttentionArgs& args_;
  std::int64_t group_, tile_rows_;
  std::vector<std::int64_t> first_;  // tile of each sequence, and the number of all
};

}  // namespace onepass
