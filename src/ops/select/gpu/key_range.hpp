// How the key is searched from which on a row's elements come to a weight (search.cuh): which parts
// of the range of all keys are looked at, one after the other, whatever reads the row.
#pragma once

#include <cstdint>

#include "core/annotate.hpp"
#include "ops/select/key.hpp"

namespace onepass {

struct KeyRange {
  Key low, high;  // from and to, this not included

  ONEPASS_HD constexpr bool has(Key key) const { return low <= key && key < high; }
};

inline constexpr KeyRange kAllKeys{0, ~Key{0}};

// A range in bins of one width, a power of two; the first has the largest keys, the
// last may be shorter.
class KeyBins {
 public:
  static constexpr int kMost = 1024;

  ONEPASS_HD constexpr explicit KeyBins(const KeyRange& range)
      : range_(range), shift_(shift_for(range.high - 1 - range.low)) {}

  ONEPASS_HD constexpr int of(Key key) const {
    return static_cast<int>((range_.high - 1 - key) >> shift_);
  }
  ONEPASS_HD constexpr int last() const { return of(range_.low); }
  ONEPASS_HD constexpr KeyRange at(int bin) const {
    const Key high = range_.high - (static_cast<Key>(bin) << shift_);
    const Key width = Key{1} << shift_;
    return {high - range_.low > width ? high - width : range_.low, high};
  }

 private:
  // So that the farthest key is in one of them. Counted: std::bit_width is no function of a device,
  // and nvcc does not say so.
  ONEPASS_HD static constexpr int shift_for(Key farthest) {
    int shift = 0;
    while (farthest >> shift >= kMost) ++shift;
    return shift;
  }

  KeyRange range_;
  int shift_;
};

// What the keys of a part weigh, and those above it.
struct KeyWeights {
  double above, inside;
  bool few;  // so few in it that they can be looked at one by one
};

// The largest limit so that the weights of all keys from it on come to `wanted`, or the lowest
// where there is not so much.
//
//   guess(range)  a part of the range that should have the limit, by weights that may be rounded;
//   weigh(part)   exactly;
//   among(part, weights)  the limit, of the few keys of a part that was weighed last.
//
// A guess that was wrong, for rounding, is followed by no other: halves end in 64 turns.
template <class Guess, class Weigh, class Among>
ONEPASS_HD inline Key limit_with(double wanted, Guess guess, Weigh weigh, Among among) {
  KeyRange range = kAllKeys;
  bool guesses = true;
  while (range.low < range.high) {
    const KeyRange part =
        guesses ? guess(range) : KeyRange{range.low + (range.high - range.low) / 2, range.high};
    const KeyWeights weights = weigh(part);
    if (weights.above >= wanted) {
      range.low = part.high;
      guesses = false;
    } else if (weights.above + weights.inside < wanted) {
      range.high = part.low;
      guesses = false;
    } else if (weights.few) {
      return among(part, weights);
    } else {
      range = part;
    }
  }
  return range.low;
}

}  // namespace onepass
