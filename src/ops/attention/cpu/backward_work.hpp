// How the backward of an attention is cut: the rows of each kv head in tiles, its keys in others,
// and which tiles of keys the rows of a tile see.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "core/integers.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/cpu/backward_layout.hpp"
#include "ops/attention/cpu/tiles.hpp"

namespace onepass {

// A kv head of a sequence. Its rows are queries times the heads that share it, as in RowTile.
struct KvHead {
  std::int64_t batch, kv_head;
  Sequence sequence;
  std::int64_t rows;
  std::int64_t first_row, first_tile;  // among those of all kv heads
};

// A tile of a kv head's rows: row r is query `first_query + r / group` and so on.
struct BackwardRows {
  std::int64_t first, rows;
  Keys seen;          // by some row
  Keys by_all;        // by all rows; may be empty
  Keys tiles{};       // of keys, that `seen` touches
  std::int64_t tile;  // among those of all kv heads
};

struct BackwardItem {
  std::int64_t head;
  std::int64_t tile;
};

class BackwardTiles {
 public:
  BackwardTiles(const AttentionArgs& args, std::int64_t tile_keys)
      : args_(args),
        group_(args.kv_heads == 0 ? 1 : args.heads / args.kv_heads),
        tile_keys_(tile_keys) {
    std::int64_t rows = 0, tiles = 0;
    for (std::int64_t b = 0; b < args.batch; ++b) {
      const Sequence s = sequence_of(args, b);
      for (std::int64_t h = 0; h < args.kv_heads; ++h) {
        heads_.push_back({b, h, s, s.queries * group_, rows, tiles});
        rows += heads_.back().rows;
        tiles += ceil_div(heads_.back().rows, kFlashRows);
      }
    }
    rows_ = rows;
    row_tiles_ = tiles;
    make_items();
  }

  const std::vector<KvHead>& heads() const { return heads_; }
  // Tiles of keys in the order in which threads take them: a tile comes after those before it of
  // its own head.
  const std::vector<BackwardItem>& items() const { return items_; }
  std::int64_t group() const { return group_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t row_tiles() const { return row_tiles_; }

  static std::int64_t row_tiles(const KvHead& head) { return ceil_div(head.rows, kFlashRows); }

  BackwardRows rows_at(const KvHead& head, std::int64_t i) const {
    BackwardRows t{.first = i * kFlashRows,
                   .rows = std::min(kFlashRows, head.rows - i * kFlashRows),
                   .seen = {},
                   .by_all = {},
                   .tile = head.first_tile + i};
    // Later queries see later keys: the first and the last say it for all.
    const Keys first = live_keys(args_, head.sequence, t.first / group_);
    const Keys last = live_keys(args_, head.sequence, (t.first + t.rows - 1) / group_);
    t.seen = {first.begin, std::max(last.end, first.begin)};
    t.by_all = {last.begin, first.end};
    if (t.seen.begin < t.seen.end) {
      t.tiles = {t.seen.begin / tile_keys_, ceil_div(t.seen.end, tile_keys_)};
    }
    return t;
  }

 private:
  void make_items() {
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const std::int64_t tiles = ceil_div(heads_[h].sequence.keys, tile_keys_);
      for (std::int64_t t = 0; t < tiles && heads_[h].rows > 0; ++t) {
        items_.push_back({static_cast<std::int64_t>(h), t});
      }
    }
    // Neighbours are then of different heads, and seldom wait for each other.
    std::stable_sort(items_.begin(), items_.end(),
                     [](const BackwardItem& a, const BackwardItem& b) { return a.tile < b.tile; });
  }

  const AttentionArgs& args_;
  std::int64_t group_, tile_keys_;
  std::int64_t rows_ = 0, row_tiles_ = 0;
  std::vector<KvHead> heads_;
  std::vector<BackwardItem> items_;
};

// The tiles, and what threads leave for each other.
template <class T>
struct BackwardWork {
  BackwardWork(const AttentionBackwardArgs& args, std::int64_t tile_keys)
      : tiles(args, tile_keys), layout(args.dim, args.dim_v, tile_keys) {
    workspace = {.rows = tiles.rows(), .tiles = tiles.row_tiles()};
    for (const BackwardItem& item : tiles.items()) {
      if (item.tile > 0) workspace.row_elements = layout.padded;
    }
  }

  void place(std::byte* memory) {
    const auto rows = static_cast<std::size_t>(workspace.rows);
    sums = reinterpret_cast<T*>(memory);
    lse = sums + rows * static_cast<std::size_t>(workspace.row_elements);
    mean = lse + rows;
    auto* counters = reinterpret_cast<std::atomic<std::int32_t>*>(mean + rows);
    added = counters;
    finite = reinterpret_cast<std::int32_t*>(counters + workspace.tiles);
    for (std::int64_t i = 0; i < workspace.tiles; ++i) new (&added[i]) std::atomic<std::int32_t>(0);
  }

  BackwardTiles tiles;
  BackwardLayout layout;
  BackwardWorkspace workspace;
  T* sums = nullptr;  // of each row, Σ dz · k so far
  T* lse = nullptr;   // what z is exponentiated against: +inf for a row that sees nothing
  T* mean = nullptr;  // Σ do · o − dlse
  std::atomic<std::int32_t>* added = nullptr;  // tiles of keys that have added to a tile's sums
  std::int32_t* finite = nullptr;              // whether all numbers of a tile's rows are
};

}  // namespace onepass
