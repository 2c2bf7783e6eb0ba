// How rows are cut: nothing twice, nothing left out, and what is kept of a piece has room.
#include "rows/cpu/layout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace onepass {
namespace {

struct Tile {
  std::int64_t begin;
  std::int64_t count;
};

std::vector<Tile> tiles_of(Columns range, std::int64_t skew) {
  std::vector<Tile> tiles;
  for_each_tile(range, skew, [&](std::int64_t c, std::size_t n, std::size_t index) {
    EXPECT_EQ(index, tiles.size());
    tiles.push_back({c, static_cast<std::int64_t>(n)});
  });
  return tiles;
}

// The live columns of a row: lengths around a few tiles, beginnings anywhere.
rc::Gen<Columns> any_range() {
  return rc::gen::exec([] {
    const auto begin =
        *rc::gen::oneOf(rc::gen::just<std::int64_t>(0), rc::gen::inRange<std::int64_t>(0, 5000));
    const auto length = *rc::gen::oneOf(
        rc::gen::inRange<std::int64_t>(0, 200), rc::gen::inRange<std::int64_t>(0, 20000),
        rc::gen::map(rc::gen::pair(rc::gen::inRange(0, 8), rc::gen::inRange(-2, 3)),
                     [](std::pair<int, int> near) -> std::int64_t {
                       return std::max<std::int64_t>(0, near.first * kTile + near.second);
                     }));
    return Columns{begin, begin + length};
  });
}

rc::Gen<int> any_split() {
  return rc::gen::oneOf(rc::gen::inRange(1, 9), rc::gen::inRange(1, 300));
}

RC_GTEST_PROP(PieceTest, PiecesCoverARangeOnceInOrder, ()) {
  const Columns range = *any_range();
  const int split = *any_split();
  std::int64_t next = range.begin;
  for (int i = 0; i < split; ++i) {
    const Columns mine = piece(range, split, i);
    RC_ASSERT(mine.begin == next);
    RC_ASSERT(mine.end >= mine.begin);
    RC_ASSERT(mine.end <= range.end);
    RC_ASSERT(mine.begin == mine.end || (mine.begin - range.begin) % kGrain == 0);
    RC_ASSERT(mine.end - mine.begin <= piece_cols(range.end - range.begin, split));
    next = mine.end;
  }
  RC_ASSERT(next == range.end);
}

// No thread has more than a grain above its share, so a long row keeps all of them busy.
RC_GTEST_PROP(PieceTest, PiecesAreEven, ()) {
  const Columns range = *any_range();
  const int split = *any_split();
  const std::int64_t share = ceil_div(range.end - range.begin, split);
  for (int i = 0; i < split; ++i) {
    const Columns mine = piece(range, split, i);
    RC_ASSERT(mine.end - mine.begin < share + kGrain);
  }
}

TEST(PieceTest, ByHand) {
  const auto expect = [](Columns got, std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(got.begin, begin);
    EXPECT_EQ(got.end, end);
  };
  expect(piece({0, 200}, 2, 0), 0, 128);
  expect(piece({0, 200}, 2, 1), 128, 200);
  expect(piece({10, 74}, 3, 0), 10, 74);
  expect(piece({10, 74}, 3, 1), 74, 74);
  expect(piece({10, 74}, 3, 2), 74, 74);
  expect(piece({7, 7}, 4, 3), 7, 7);
  expect(piece({5, 1000}, 1, 0), 5, 1000);
}

RC_GTEST_PROP(TileTest, TilesCoverARangeOnceAndBeginAligned, ()) {
  const Columns range = *any_range();
  const auto skew = *rc::gen::inRange<std::int64_t>(0, kGrain);
  std::int64_t next = range.begin;
  const std::vector<Tile> tiles = tiles_of(range, skew);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    RC_ASSERT(tiles[i].begin == next);
    RC_ASSERT(tiles[i].count > 0);
    RC_ASSERT(tiles[i].count <= kTile);
    RC_ASSERT(i == 0 || (skew + tiles[i].begin) % kGrain == 0);
    // None but the ends is short: a row of many short tiles would be a slow one.
    RC_ASSERT(i + 1 == tiles.size() || tiles[i].count > kTile - kGrain);
    next += tiles[i].count;
  }
  RC_ASSERT(next == range.end);
  RC_ASSERT(static_cast<std::int64_t>(tiles.size()) <= most_tiles(range.end - range.begin));
}

TEST(TileTest, ByHand) {
  EXPECT_TRUE(tiles_of({0, 0}, 0).empty());
  EXPECT_TRUE(tiles_of({9, 9}, 5).empty());
  const std::vector<Tile> tiles = tiles_of({0, 5000}, 3);
  ASSERT_EQ(tiles.size(), 5U);
  EXPECT_EQ(tiles[0].count, kTile - 3);
  EXPECT_EQ(tiles[1].begin, kTile - 3);
  EXPECT_EQ(tiles[1].count, kTile);
  EXPECT_EQ(tiles[4].begin + tiles[4].count, 5000);
}

// What a worker does with its scratch, on paper: weights per tile, aligned as in the output, then
// the tile's maximum. The plan reserves for a row of `cols`; masks may leave any part of it.
RC_GTEST_PROP(KeptTest, ScratchHoldsEveryWeightAndEveryMaximum, ()) {
  const Columns live = *any_range();
  const std::int64_t cols = live.end + *rc::gen::inRange<std::int64_t>(0, 300);
  const int split = *any_split();
  const auto skew = *rc::gen::inRange<std::int64_t>(0, kGrain);
  const std::int64_t weights = kept_weights(cols, split);
  const std::int64_t maxima = kept_elements(cols, split) - weights;
  RC_ASSERT(weights % kGrain == 0);  // so that the maxima after them are aligned too
  for (int i = 0; i < split; ++i) {
    const Columns mine = piece(live, split, i);
    const std::vector<Tile> tiles = tiles_of(mine, skew);
    RC_ASSERT(static_cast<std::int64_t>(tiles.size()) <= maxima);
    for (const Tile& tile : tiles) {
      const std::int64_t at = kept_at(mine, skew, tile.begin);
      RC_ASSERT(tile.begin == mine.begin || at % kGrain == 0);
      RC_ASSERT(at >= 0 && at + tile.count <= weights);
    }
  }
}

TEST(KeptTest, IsLittleMoreThanARow) {
  for (const std::int64_t cols : {1, 64, 1000, 2048, 50257, 1 << 20}) {
    EXPECT_LE(kept_elements(cols, 1), cols + cols / 1024 + 4 * kGrain) << cols;
    EXPECT_LE(kept_elements(cols, 8) * 8, cols + cols / 1024 + 8 * 4 * kGrain) << cols;
  }
}

TEST(RoundTest, UpAndNoFurther) {
  EXPECT_EQ(ceil_div(0, 5), 0);
  EXPECT_EQ(ceil_div(10, 5), 2);
  EXPECT_EQ(ceil_div(11, 5), 3);
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
}

}  // namespace
}  // namespace onepass
