// The key from which on a row's elements come to a weight, by a block that reads the row again and again: for
// what is wanted of a row that is more than candidates can be.
#pragma once

#include "ops/topk/choose.cuh"

namespace onepass::ops::topk {

struct SearchShared {
  BlockFold<Add<double>>::Scratch sums;
  BlockFold<LargestKey>::Scratch keys;
};

template <class Row>
class Search {
 public:
  // With or without what is −inf.
  __device__ Search(SearchShared& shared, const Row& row, int cols, bool all)
      : shared_(shared), row_(row), cols_(cols), all_(all) {}

  // body(x, key) for every element, several being on their way at once.
  template <class Body>
  __device__ void each(Body body) const {
    constexpr int kAhead = 8;
    const auto step = static_cast<int>(blockDim.x);
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first < cols_; first += kAhead * step) {
      float x[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int c = first + a * step;
        x[a] = c < cols_ ? row_.at(c) : minus_infinity<float>();
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int c = first + a * step;
        if (x[a] > minus_infinity<float>() || (all_ && c < cols_)) {
          body(x[a], key_of(x[a], static_cast<unsigned>(c)));
        }
      }
    }
  }

  // Everybody leaves with the sum of what body(x, key) gives.
  template <class Body>
  __device__ double sum(Body body) const {
    double mine = 0;
    each([&](float x, Key key) { mine += body(x, key); });
    return BlockFold<Add<double>>(shared_.sums).all(mine);
  }

  template <class Body>
  __device__ Key largest(Body body) const {
    Key mine = 0;
    each([&](float x, Key key) { mine = max(mine, body(x, key)); });
    return BlockFold<LargestKey>(shared_.keys).all(mine);
  }

  // The largest limit so that the weights of all keys from it on come to `wanted`, or the lowest where there
  // is not so much. Seven limits are tried at a time; it ends when one element is between two of them.
  template <class Weigh>
  __device__ Key from(double wanted, Weigh weigh) const {
    constexpr int kTried = 7;
    Key low = 0;
    Key high = ~Key{0};
    double fewest = 0;                                  // elements from `high` on
    double most = sum([](float, Key) { return 1.0; });  // and from `low` on
    const Key least_index = static_cast<Key>(~static_cast<unsigned>(cols_ - 1));
    while (most - fewest > 1 && high - low > 1) {
      // Between keys of one value only indices are left to tell apart.
      if (low >> 32 == (high - 1) >> 32) low = max(low, low >> 32 << 32 | least_index);
      const Key apart = max((high - low) / (kTried + 1), Key{1});
      double weights[kTried] = {};
      double counts[kTried] = {};
      each([&](float x, Key key) {
        const double w = weigh(x, key);
#pragma unroll
        for (int t = 0; t < kTried; ++t) {
          if (key >= low + (t + 1) * apart) {
            weights[t] += w;
            counts[t] += 1;
          }
        }
      });
      const Key start = low;
#pragma unroll 1
      for (int t = 0; t < kTried; ++t) {
        const BlockFold<Add<double>> block(shared_.sums);
        const double weight = block.all(weights[t]);
        const double count = block.all(counts[t]);
        const Key limit = start + (t + 1) * apart;
        if (limit >= high) break;
        if (weight >= wanted) {
          low = limit;
          most = count;
        } else {
          high = limit;
          fewest = count;
          break;
        }
      }
    }
    return low;
  }

 private:
  SearchShared& shared_;
  const Row& row_;
  int cols_;
  bool all_;
};

}  // namespace onepass::ops::topk
