// The search for a limit: that bins are a partition, and that it ends, with the right key, however
// weights are rounded.
// Not under sanitizers: numbers in, numbers out.
#include "ops/select/gpu/key_range.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace onepass {
namespace {

RC_GTEST_PROP(KeyRangeTest, BinsAreAPartition, (Key a, Key b, Key c)) {
  const KeyRange range{std::min(a, b), std::max(a, b)};
  RC_PRE(range.low < range.high);
  const KeyBins bins(range);
  RC_ASSERT(bins.last() < KeyBins::kMost);
  RC_ASSERT(bins.at(0).high == range.high);
  RC_ASSERT(bins.at(bins.last()).low == range.low);
  const Key key = range.low + c % (range.high - range.low);
  const int bin = bins.of(key);
  RC_ASSERT(bins.at(bin).has(key));
  if (bin < bins.last()) RC_ASSERT(bins.at(bin).low == bins.at(bin + 1).high);
  if (range.high - range.low > 1) RC_ASSERT(bins.last() > 0);
}

// A row as search.cuh sees it, in the host's memory.
class Row {
 public:
  explicit Row(std::vector<float> z) : z_(std::move(z)) {
    m_ = *std::ranges::max_element(z_);
    for (std::size_t i = 0; i < z_.size(); ++i) {
      keys_.push_back(static_cast<Key>(word(z_[i])) << 32 | ~static_cast<unsigned>(i));
      weights_.push_back(std::exp(z_[i] - m_));
      all_ += weights_.back();
    }
  }

  double all() const { return all_; }

  double from(Key limit) const {
    double sum = 0;
    for (std::size_t i = 0; i < keys_.size(); ++i) sum += keys_[i] >= limit ? weights_[i] : 0;
    return sum;
  }

  bool has(Key key) const { return std::ranges::find(keys_, key) != keys_.end(); }

  // With weights rounded to whole units in every guess; at most `room` keys are
  // looked at one by one.
  Key limit(double wanted, std::size_t room, int& turns) const {
    const float unit = 0x1p31F / static_cast<float>(all_);
    bool whole = true;
    turns = 0;
    const auto guess = [&](const KeyRange& range) {
      const KeyBins bins(range);
      const bool by_logit = std::exchange(whole, false);
      std::vector<double> units(KeyBins::kMost, 0);
      double above = 0;
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        const bool inside = by_logit || range.has(keys_[i]);
        if (inside) {
          units[static_cast<std::size_t>(by_logit ? bin_of(z_[i]) : bins.of(keys_[i]))] +=
              std::rint(weights_[i] * unit);
        } else if (keys_[i] >= range.high) {
          above += weights_[i];
        }
      }
      int bin = 0;
      const int last = by_logit ? KeyBins::kMost - 1 : bins.last();
      for (double sum = units[0]; bin < last && sum < (wanted - above) * unit;) {
        sum += units[static_cast<std::size_t>(++bin)];
      }
      return by_logit ? of_logits(bin) : bins.at(bin);
    };
    const auto inside = [&](const KeyRange& part) {
      std::vector<std::size_t> in;
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        if (part.has(keys_[i])) in.push_back(i);
      }
      return in;
    };
    const auto weigh = [&](const KeyRange& part) {
      ++turns;
      const std::vector<std::size_t> in = inside(part);
      KeyWeights weights{.above = from(part.high), .inside = 0, .few = in.size() <= room};
      for (const std::size_t i : in) weights.inside += weights_[i];
      return weights;
    };
    const auto among = [&](const KeyRange& part, const KeyWeights& weights) {
      std::vector<std::size_t> in = inside(part);
      std::ranges::sort(in, std::greater(), [&](std::size_t i) { return keys_[i]; });
      double sum = weights.above;
      for (const std::size_t i : in) {
        sum += weights_[i];
        if (sum >= wanted) return keys_[i];
      }
      return part.low;
    };
    return limit_with(wanted, guess, weigh, among);
  }

 private:
  static unsigned word(float z) {
    unsigned bits;
    std::memcpy(&bits, &z, sizeof bits);
    return bits ^ ((bits & 0x80000000U) != 0 ? 0xFFFFFFFFU : 0x80000000U);
  }

  int bin_of(float z) const {
    return static_cast<int>(std::min((m_ - z) * 32, static_cast<float>(KeyBins::kMost - 1)));
  }

  KeyRange of_logits(int bin) const {
    Key low = ~Key{0}, high = ~Key{0};
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (bin_of(z_[i]) <= bin) low = std::min(low, keys_[i] >> 32 << 32);
      if (bin_of(z_[i]) < bin) high = std::min(high, keys_[i] >> 32 << 32);
    }
    return {bin == KeyBins::kMost - 1 ? 0 : low, high};
  }

  std::vector<float> z_;
  float m_;
  std::vector<Key> keys_;
  std::vector<float> weights_;
  double all_ = 0;
};

void expect_limit(const Row& row, double top_p, std::size_t room, const std::string& what) {
  int turns = 0;
  const double wanted = top_p * row.all();
  const Key limit = row.limit(wanted, room, turns);
  EXPECT_LE(turns, 70) << what;
  if (limit == 0) {
    EXPECT_NEAR(row.all(), wanted, 1e-9 * wanted) << what;  // all of them, by rounding
    return;
  }
  EXPECT_GE(row.from(limit), wanted * (1 - 1e-12)) << what;
  EXPECT_LT(row.from(limit + 1), wanted * (1 + 1e-12)) << what;
}

TEST(KeyRangeTest, TheSearchEndsWhereRoundingMisleadsIt) {
  for (const double top_p : {0.5, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999, 0.999999, 0.99999994}) {
    const std::string end = ", top_p " + std::to_string(top_p);
    expect_limit(Row(std::vector<float>(12800, 1.5F)), top_p, 1024, "equal" + end);
    expect_limit(Row(std::vector<float>(16384, -2.0F)), top_p, 64, "equal, little room" + end);
    std::vector<float> peak(13107, -22.3F);
    peak[77] = 0;
    expect_limit(Row(peak), top_p, 1024, "one far above the others" + end);
    std::mt19937 random(5);
    for (const float spread : {0.1F, 1.0F, 2.0F, 5.0F, 50.0F}) {
      std::normal_distribution<float> normal(0, spread);
      std::vector<float> z(20000);
      for (float& value : z) value = normal(random);
      expect_limit(Row(z), top_p, 1024, "spread " + std::to_string(spread) + end);
      for (float& value : z) value = std::round(4 * value) / 4;
      expect_limit(Row(z), top_p, 256, "ties, spread " + std::to_string(spread) + end);
    }
  }
}

}  // namespace
}  // namespace onepass
