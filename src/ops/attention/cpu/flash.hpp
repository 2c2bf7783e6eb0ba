// What the threads of cpu_flash share: the tiles, the parts of keys, and what parts leave.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/state.hpp"
#include "ops/attention/cpu/layout.hpp"
#include "ops/attention/cpu/plan.hpp"
#include "ops/attention/cpu/tiles.hpp"

namespace onepass {

template <class T>
struct FlashWork {
  FlashWork(const AttentionArgs& args, const CpuAttentionLaunch& launch)
      : tiles(args, kFlashRows), layout(args.dim, args.dim_v), part_keys(launch.part_keys) {
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < args.batch; ++b) {
      const Sequence s = sequence_of(args, b);
      longest = std::max(longest, s.keys);
      rows = std::max(rows, std::min(kFlashRows, s.queries * tiles.group()));
    }
    if (part_keys > 0) parts = std::max<std::int64_t>((longest + part_keys - 1) / part_keys, 1);
  }

  Keys keys_of(const RowTile& tile, std::int64_t part) const {
    if (parts == 1) return {0, tile.sequence.keys};
    const std::int64_t first = std::min(part * part_keys, tile.sequence.keys);
    return {first, std::min(first + part_keys, tile.sequence.keys)};
  }

  // In floating point: lengths and a split of one key may ask for more than integers count.
  double shared_bytes() const {
    if (parts == 1) return 0;
    return slots() * (static_cast<double>(layout.padded_v) * sizeof(T) + sizeof(State<T>));
  }

  void place(std::byte* memory) {
    sums_ = reinterpret_cast<T*>(memory);
    const std::size_t sums = parts == 1 ? 0 : static_cast<std::size_t>(slots() * layout.padded_v);
    states_ = reinterpret_cast<State<T>*>(sums_ + sums);
  }

  // What part `part` of row r of a tile left; the parts of a row are neighbours.
  State<T>* state(std::int64_t tile, std::int64_t r, std::int64_t part) const {
    return states_ + slot(tile, r, part);
  }
  T* sums(std::int64_t tile, std::int64_t r, std::int64_t part) const {
    return sums_ + slot(tile, r, part) * static_cast<std::size_t>(layout.padded_v);
  }

  RowTiles tiles;
  FlashLayout layout;
  std::int64_t part_keys;
  std::int64_t parts = 1;
  std::int64_t rows = 0;  // of a tile, at most

 private:
  double slots() const {
    return static_cast<double>(tiles.count()) * static_cast<double>(rows) *
           static_cast<double>(parts);
  }
  std::size_t slot(std::int64_t tile, std::int64_t r, std::int64_t part) const {
    return static_cast<std::size_t>((tile * rows + r) * parts + part);
  }

  T* sums_ = nullptr;
  State<T>* states_ = nullptr;
};

}  // namespace onepass
