// The keys that tiles of queries see, and who computes which tile, in which order.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/attention/args.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"
#include "ops/attention/gpu/hopper/tile_scheduler.hpp"
#include "ops/attention/sight.hpp"

namespace onepass {
namespace {

using ops::attention::key_tiles;
using ops::attention::KeyTiles;
using ops::attention::Schedule;
using ops::attention::Sight;
using ops::attention::Walk;
using ops::attention::Work;

std::vector<Sight> sights() {
  std::vector<Sight> all;
  for (const int queries : {1, 5, 64, 130}) {
    for (const int keys : {0, 1, 63, 64, 65, 200}) {
      for (const int before : {-1, 0, 3, 70, 1000}) {
        for (const int after : {-1, 0, 9, 1000}) all.push_back({queries, keys, before, after});
      }
    }
  }
  return all;
}

// What a kernel that takes one query at a time would see.
bool sees(const Sight& s, int query, int key) {
  const int own = query + s.keys - s.queries;
  return (s.before < 0 || key >= own - s.before) && (s.after < 0 || key <= own + s.after);
}

TEST(AttentionTilesTest, TilesHaveAllKeysThatAreSeenAndWholeOnesNoOther) {
  for (const Sight& s : sights()) {
    for (const int rows : {16, 64}) {
      for (const int width : {16, 64}) {
        for (int first = 0; first < s.queries; first += rows) {
          const KeyTiles tiles = key_tiles(s, first, rows, width);
          for (int key = 0; key < s.keys; ++key) {
            int count = 0;
            const int last = std::min(first + rows, s.queries);
            for (int q = first; q < last; ++q) count += sees(s, q, key) ? 1 : 0;
            const int tile = key / width;
            const bool walked = tile >= tiles.begin && tile < tiles.end;
            ASSERT_TRUE(count == 0 || walked) << key;
            const bool whole = walked && tiles.whole(tile);
            ASSERT_EQ(whole ? count : last - first, last - first) << key;
          }
          if (tiles.whole_end > tiles.whole_begin && tiles.end > tiles.begin) {
            ASSERT_LE(std::min(tiles.end, tiles.whole_end) * width, s.keys);  // none past the last
          }
        }
      }
    }
  }
}

TEST(AttentionTilesTest, TheQueriesThatSeeSomeKeysAreInOneRange) {
  for (const Sight& s : sights()) {
    for (const int count : {1, 8, 64}) {
      for (int first = 0; first < s.keys; first += count) {
        const ops::attention::QueryRange range = ops::attention::queries_seeing(s, first, count);
        ASSERT_LE(0, range.begin);
        ASSERT_LE(range.begin, range.end);
        ASSERT_LE(range.end, s.queries);
        for (int q = 0; q < s.queries; ++q) {
          int seen = 0;
          for (int key = first; key < std::min(first + count, s.keys); ++key) {
            seen += sees(s, q, key) ? 1 : 0;
          }
          const bool inside = q >= range.begin && q < range.end;
          // A window so narrow that it falls between two keys sees none.
          ASSERT_TRUE(seen == 0 || inside) << q;
          ASSERT_TRUE(!inside || seen > 0 || s.begin(q) == s.end(q)) << q;
        }
      }
    }
  }
}

TEST(AttentionTilesTest, RowsSeeTogetherWhatEachOfThemSees) {
  for (const Sight& s : sights()) {
    for (int first = 0; first < s.queries; first += 16) {
      const ops::attention::SightOfRows rows = ops::attention::of_rows(s, first, 16);
      const int last = std::min(first + 16, s.queries);
      for (int key = 0; key < s.keys; ++key) {
        int count = 0;
        for (int q = first; q < last; ++q) count += sees(s, q, key) ? 1 : 0;
        ASSERT_EQ(rows.by_all(key, 1), count == last - first) << key;
        ASSERT_TRUE(!rows.by_none(key) || count == 0) << key;
        // What a window has left behind is not told apart.
        ASSERT_TRUE(rows.by_none(key) || count > 0 || s.before >= 0) << key;
        for (const int width : {2, 64}) {
          const bool all = rows.by_all(key, 1) && rows.by_all(key + width - 1, 1);
          ASSERT_EQ(rows.by_all(key, width), all && key + width <= s.keys) << key;
        }
      }
    }
  }
}

TEST(AttentionTilesTest, SightIsWhatTheArgumentsSay) {
  AttentionArgs a{.batch = 1, .heads = 1, .kv_heads = 1, .queries = 7, .keys = 12, .dim = 8};
  for (const std::int64_t left : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 40}) {
    for (const std::int64_t right : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40}) {
      for (const bool causal : {false, true}) {
        a.window_left = left;
        a.window_right = right;
        a.causal = causal;
        const Sequence s = sequence_of(a, 0);
        const Sight sight = sight_of(a, s);
        for (int q = 0; q < 7; ++q) {
          const Keys keys = live_keys(a, s, q);
          const int begin = std::min(sight.begin(q), sight.end(q));
          EXPECT_EQ(begin, keys.begin);
          EXPECT_EQ(sight.end(q), keys.end);
        }
      }
    }
  }
}

TEST(AttentionTilesTest, PartsHaveEveryTileOnce) {
  const KeyTiles all{3, 20, 5, 18};
  for (const int tiles : {1, 4, 7, 100}) {
    std::vector<int> seen;
    for (int part = 0; part < 40; ++part) {
      const KeyTiles own = all.of_part(part, tiles);
      for (int t = own.begin; t < own.end; ++t) seen.push_back(t);
    }
    std::vector<int> expected(17);
    std::iota(expected.begin(), expected.end(), 3);
    EXPECT_EQ(seen, expected);
  }
}

TEST(AttentionTilesTest, EveryTileHasOneBlock) {
  for (const int left : {-2, -1, 0, 1, 2}) {
    for (const int tiles : {1, 2, 3, 4, 11, 16, 33}) {
      for (const int heads : {1, 5, 64}) {
        for (const int blocks : {1, 2, 7, 132}) {
          const Schedule schedule =
              left < -1 ? Schedule(tiles, heads) : Schedule::in_pairs(tiles, heads, blocks, left);
          std::map<std::pair<int, int>, int> times;
          for (int block = 0; block < blocks; ++block) {
            for (Walk walk(schedule, block, blocks); !walk.done(); walk.advance()) {
              const Work work = walk.work();
              ++times[{work.head, work.query_tile}];
            }
          }
          EXPECT_EQ(times.size(), static_cast<std::size_t>(tiles * heads));
          for (const auto& [work, count] : times) EXPECT_EQ(count, 1) << work.first;
        }
      }
    }
  }
}

// A causal sequence: tile t has t + 1 tiles of keys, and something to begin and to end with. 15.5
// tiles per block, as 16384 tokens of 16 heads have on an H200.
TEST(AttentionTilesTest, BlocksUnderADiagonalAreDoneTogether) {
  constexpr int kBlocks = 132;
  constexpr double kOwn = 1.5;
  for (const auto& [tiles, most] : {std::pair{4, 1.02},
                                    {8, 1.011},
                                    {16, 1.006},
                                    {32, 1.01},
                                    {43, 1.01},
                                    {64, 1.01},
                                    {128, 1.01}}) {
    const Schedule schedule = Schedule::in_pairs(tiles, 2048 / tiles, kBlocks,
                                                 gpu_attention::hopper_rounds_left(128, tiles));
    std::vector<double> load(kBlocks);
    for (int block = 0; block < kBlocks; ++block) {
      for (Walk walk(schedule, block, kBlocks); !walk.done(); walk.advance()) {
        load[static_cast<std::size_t>(block)] += walk.work().query_tile + 1 + kOwn;
      }
    }
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / kBlocks;
    EXPECT_LE(*std::max_element(load.begin(), load.end()), most * mean) << tiles;
  }
}

}  // namespace
}  // namespace onepass
