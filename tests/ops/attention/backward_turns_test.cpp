// The order in which the blocks of the Hopper backward go through tiles and add to dq.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "ops/attention/gpu/backward/hopper/turns.hpp"
#include "ops/attention/sight.hpp"

namespace onepass {
namespace {

using ops::attention::Column;
using ops::attention::Rival;
using ops::attention::Sight;
using ops::attention::Steps;

struct Case {
  Sight sight;
  int sharing, kv_heads, processors;
};

template <int Queries>
class Simulation {
 public:
  using Turns = ops::attention::Turns<128, Queries>;

  explicit Simulation(const Case& of)
      : case_(of),
        turns_(of.sharing, of.sight, of.kv_heads, of.processors),
        tiles_(turns_.query_tiles(of.sight)),
        added_(static_cast<std::size_t>(of.kv_heads * of.sharing * tiles_)) {
    for (int block = 0; block < turns_.blocks; ++block) blocks_.push_back(enter({.turn = block}));
  }

  // All blocks take a step at a time, those that may add to their tile.
  void run() {
    for (bool busy = true; busy; ++rounds_) {
      const std::vector<int> before = added_;
      busy = false;
      bool any = false;
      for (Block& block : blocks_) {
        if (block.turn >= turns_.turns) continue;
        busy = true;
        const int kv_head = block.turn / turns_.of_head;
        const int head = kv_head * case_.sharing + block.steps.head();
        const auto tile = static_cast<std::size_t>(head * tiles_ + block.steps.query_tile());
        const int parts = parts_before(block, kv_head);
        ASSERT_LE(before[tile], parts) << "somebody came too early";
        if (before[tile] < parts) {
          ++waits_;
          continue;
        }
        any = true;
        ++added_[tile];
        ++block.step;
        block.steps.advance();
        block = enter(block);
      }
      ASSERT_EQ(any, busy) << "all wait for each other";
    }
  }

  // Every tile has a part of each column that sees it.
  void check() const {
    for (int head = 0; head < case_.kv_heads * case_.sharing; ++head) {
      for (int tile = 0; tile < tiles_; ++tile) {
        int columns = 0;
        for (int place = 0; place < turns_.of_head; ++place) {
          for (int which = 0; which < turns_.count(place); ++which) {
            columns += turns_.column(case_.sight, place, which).sees(tile) ? 1 : 0;
          }
        }
        EXPECT_EQ(added_[static_cast<std::size_t>(head * tiles_ + tile)], columns) << tile;
      }
    }
  }

  int waits() const { return waits_; }
  int rounds() const { return rounds_ - 1; }

 private:
  struct Block {
    int turn = 0, which = 0;
    int step = 0;  // of the turn
    Steps steps = Steps(Turns(), Column());
    bool inside = false;
  };

  // On to the next column that has a step.
  Block enter(Block block) const {
    while (block.turn < turns_.turns && block.steps.left() == 0) {
      const int place = block.turn % turns_.of_head;
      if (block.inside && ++block.which == turns_.count(place)) {
        block = {.turn = block.turn + turns_.blocks};
        if (block.turn >= turns_.turns) break;
      }
      block.inside = true;
      block.steps =
          Steps(turns_, turns_.column(case_.sight, block.turn % turns_.of_head, block.which));
    }
    return block;
  }

  int parts_before(const Block& block, int kv_head) const {
    const int place = block.turn % turns_.of_head;
    const int round = turns_.round(kv_head, place);
    const int first = turns_.first_of_round(kv_head, round);
    const int tile = block.steps.query_tile();
    int parts = turns_.adders_of_turns_before(case_.sight, first, tile);
    for (int other = first; other < turns_.end_of_round(kv_head, round); ++other) {
      const Rival rival(turns_, case_.sight, other);
      parts += rival.adds_before(turns_, case_.sight, other < place, block.step, tile,
                                 block.steps.head());
    }
    return parts;
  }

  Case case_;
  Turns turns_;
  int tiles_;
  std::vector<int> added_;
  std::vector<Block> blocks_;
  int waits_ = 0, rounds_ = 0;
};

template <int Queries>
int waits_of(const Case& of) {
  Simulation<Queries> simulation(of);
  simulation.run();
  simulation.check();
  return simulation.waits();
}

TEST(AttentionBackwardTurnsTest, EveryColumnAddsOnceAndNobodyWaitsForever) {
  for (const int queries : {1, 64, 65, 300, 1000}) {
    for (const int keys : {1, 128, 129, 700}) {
      for (const int before : {-1, 0, 70}) {
        for (const int after : {-1, 0, 9}) {
          for (const int sharing : {1, 3}) {
            for (const int processors : {1, 5, 132}) {
              const Case of{{queries, keys, before, after}, sharing, 7, processors};
              SCOPED_TRACE(testing::Message() << queries << ' ' << keys << ' ' << before << ' '
                                              << after << ' ' << sharing << ' ' << processors);
              waits_of<64>(of);
              waits_of<128>(of);
              if (HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

// A part is added as soon as it is made, where there are tiles enough for all.
TEST(AttentionBackwardTurnsTest, NobodyWaitsAtTrainingShapes) {
  for (const int tokens : {1024, 4096, 8192}) {
    for (const int after : {-1, 0}) {
      for (const int sharing : {1, 2}) {
        const Case of{{tokens, tokens, -1, after}, sharing, 8192 / tokens + 3, 132};
        EXPECT_EQ(waits_of<64>(of), 0) << tokens << ' ' << after;
        EXPECT_EQ(waits_of<128>(of), 0) << tokens << ' ' << after;
      }
    }
  }
}

// Under a diagonal blocks have columns in pairs: as long as half of a rectangle.
TEST(AttentionBackwardTurnsTest, PairsOfColumnsAreEquallyLong) {
  Simulation<64> simulation({{4096, 4096, -1, 0}, 1, 132, 132});
  simulation.run();
  EXPECT_EQ(simulation.rounds(), 16 * 66);
}

}  // namespace
}  // namespace onepass
