// The memory of cpu_flash's backward, in elements of the computing type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/integers.hpp"
#include "ops/attention/cpu/layout.hpp"

namespace onepass {

// Keys of a tile: as many blocks of kFlashKeys as their copies and gradients leave room for in an
// L2, but so few that there are tiles for many threads. A function of the problem alone, as the
// order of all sums follows from it.
constexpr std::int64_t backward_tile_keys(int dims, std::int64_t kv_heads_keys,
                                          std::size_t element_bytes) {
  constexpr std::int64_t kRoom = 1 << 17;  // bytes of keys and values
  constexpr std::int64_t kTiles = 64;
  const auto block_bytes = kFlashKeys * dims * static_cast<std::int64_t>(element_bytes);
  std::int64_t blocks = std::clamp<std::int64_t>(kRoom / block_bytes, 1, 4);
  while (blocks > 1 && kv_heads_keys < kTiles * blocks * kFlashKeys) blocks /= 2;
  return blocks * kFlashKeys;
}

struct BackwardLayout {
  constexpr BackwardLayout(int dim, int dim_v, std::int64_t tile_keys)
      : dim(dim),
        dim_v(dim_v),
        tile_keys(tile_keys),
        padded(round_up(dim, 16)),
        padded_v(round_up(dim_v, 16)) {}

  int dim, dim_v;
  std::int64_t tile_keys;
  std::int64_t padded, padded_v;  // dims in whole vectors of any instruction set

  // Scores come in groups of rows.
  static constexpr std::int64_t kScoreRows = kFlashRows + 16;

  constexpr std::int64_t key_panels() const { return tile_keys * dim; }
  constexpr std::int64_t value_panels() const { return tile_keys * dim_v; }
  constexpr std::int64_t key_rows() const { return tile_keys * padded; }
  constexpr std::int64_t key_sums() const { return tile_keys * padded; }
  constexpr std::int64_t value_sums() const { return tile_keys * padded_v; }
  constexpr std::int64_t queries() const { return kFlashRows * padded; }
  constexpr std::int64_t d_outputs() const { return kFlashRows * padded_v; }
  constexpr std::int64_t query_sums() const { return kFlashRows * padded; }
  constexpr std::int64_t scores() const { return kScoreRows * kFlashKeys; }
  // Rows a whole power of two apart would share a few sets of an L1.
  constexpr std::int64_t score_stride() const { return tile_keys + 16; }
  constexpr std::int64_t d_scores() const { return kScoreRows * score_stride(); }

  constexpr std::size_t elements() const {
    return static_cast<std::size_t>(key_panels() + value_panels() + key_rows() + key_sums() +
                                    value_sums() + queries() + d_outputs() + query_sums() +
                                    2 * scores() + d_scores());
  }
};

// What all threads share: of each row its lse, its mean gradient and, where several tiles of keys
// add to it, the sum of its query's gradient; of each tile of rows how many have, and whether its
// numbers are finite.
struct BackwardWorkspace {
  std::int64_t rows = 0, tiles = 0;
  std::int64_t row_elements = 0;  // of a query's sum; 0: none is kept

  constexpr double bytes(std::size_t element_bytes) const {
    const double per_row = static_cast<double>(2 + row_elements) * element_bytes;
    return static_cast<double>(rows) * per_row + static_cast<double>(tiles) * 8;
  }
};

}  // namespace onepass
