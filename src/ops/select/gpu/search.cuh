// The key from which on a row's elements come to a weight, by a block that reads the row a few
// times: for what is wanted of a row that is more than candidates can be.
#pragma once

#include "merge/warp_rows.cuh"
#include "ops/select/gpu/select.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::select {

// What threads before this one bring, and all of them. By a whole block; the slots are free again
// afterwards. Called, not inlined: instructions that are met once have to be fetched, too.
struct Prefix {
  double before, all;
};
static __device__ __noinline__ Prefix prefix_of(double mine,
                                                BlockFold<Add<double>>::Scratch& of_warp) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const double until = sum_until(mine);
  if (lane == kWarp - 1) of_warp[warp] = until;
  __syncthreads();
  Prefix prefix{until - mine, 0};
#pragma unroll 1
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    if (w < warp) prefix.before += of_warp[w];
    prefix.all += of_warp[w];
  }
  __syncthreads();
  return prefix;
}

// body(x, index) for every element, or those above −inf, by a block; several are on
// their way at once.
template <class Row, class Body>
__device__ inline void each_element(const Row& row, int cols, bool all, Body body) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);
  const auto look = [&](float x, std::int64_t column) {
    if (all || x > minus_infinity<float>()) body(x, static_cast<unsigned>(column));
  };
  if constexpr (Row::kAny) {
    constexpr int kAhead = 4;
#pragma unroll 1
    for (int first = thread; first < cols; first += kAhead * step) {
      float x[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        x[a] = first + a * step < cols ? row.at(first + a * step) : 0;
#pragma unroll 1
      for (int i = first, a = 0; a < kAhead && i < cols; ++a, i += step) {
        look(x[0], i);
#pragma unroll
        for (int b = 1; b < kAhead; ++b) x[b - 1] = x[b];
      }
    }
  } else {
    constexpr int kAhead = 2;
#pragma unroll 1
    for (int first = thread; first < row.packs(); first += kAhead * step) {
      typename Row::Stored pack[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (first + a * step < row.packs()) pack[a] = row.fetch(first + a * step);
      }
      // One pack's instructions serve all: the others move up to its place.
#pragma unroll 1
      for (int i = first, a = 0; a < kAhead && i < row.packs(); ++a, i += step) {
        float x[Row::kLanes];
        Row::values(pack[0], x);
#pragma unroll
        for (int k = 0; k < Row::kLanes; ++k) look(x[k], row.column(i) + k);
#pragma unroll
        for (int b = 1; b < kAhead; ++b) pack[b - 1] = pack[b];
      }
    }
    if (thread < row.edges()) look(row.edge(thread), row.edge_column(thread));
  }
}

// A thread's own of n in a row, as many to each; their number is a power of two.
struct Run {
  int begin, end;

  __device__ explicit Run(int n) {
    const int shift = __ffs(static_cast<int>(blockDim.x)) - 1;
    const int each = (n + static_cast<int>(blockDim.x) - 1) >> shift;
    begin = min(static_cast<int>(threadIdx.x) * each, n);
    end = min(begin + each, n);
  }
};

struct SearchShared {
  BlockFold<Add<double>>::Scratch sums;
  int count;  // keys that are looked at one by one
  int first;  // bin, or key, with which there is enough
};

// Larger than SearchShared, and where the kernel has it.
struct SearchMemory {
  static constexpr int kBins = KeyBins::kMost;
  unsigned* bins;
  Key* keys;
  int room;  // a power of two
};

template <class Row>
class Search {
 public:
  // With or without what is −inf. `m`: the row's largest z.
  __device__ Search(SearchShared& shared, const SearchMemory& memory, const Row& row, int cols,
                    float m, bool all)
      : shared_(shared), memory_(memory), row_(row), cols_(cols), m_(m), all_(all) {}

  // Each thread leaves with the sum of what weigh(x, index) gives.
  template <class Weigh>
  __device__ double sum(Weigh weigh) const {
    double mine = 0;
    each([&](float x, unsigned index) { mine += static_cast<double>(weigh(x, index)); });
    return BlockFold<Add<double>>(shared_.sums).all(mine);
  }

  // The largest limit so that the weights of all keys from it on come to `wanted`, or the lowest
  // where there is not so much. weigh(x, index) is not negative, and all of them times `unit` come
  // to less than 2^32.
  //
  // One read puts the weights into bins, of z at first and of keys in a narrower range then, which
  // finds the bin that has the limit but for rounding. The next takes the bin's keys, and adds up
  // exactly what is above them.
  template <class Weigh>
  __device__ Key from(double wanted, float unit, Weigh weigh) const {
    bool whole = true;
    const auto guess = [&](const KeyRange& range) {
      if (whole) {
        whole = false;
        const int bin = bin_of_limit(
            wanted, unit, kBins - 1, [&](float x, unsigned) { return bin_of_logit(x); }, weigh);
        return range_of_logits(bin);
      }
      const KeyRange narrow = narrowed(range);
      const KeyBins bins(narrow);
      return bins.at(bin_of_limit(
          wanted, unit, bins.last(),
          [&](float x, unsigned index) {
            const Key key = key_of(x, index);
            return key >= narrow.high ? kAbove : key >= narrow.low ? bins.of(key) : kBelow;
          },
          weigh));
    };
    return limit_with(
        wanted, guess, [&](const KeyRange& part) { return take(part, weigh); },
        [&](const KeyRange& part, const KeyWeights& weights) {
          return first_with(wanted - weights.above, part.low, weigh);
        });
  }

 private:
  static constexpr int kBins = SearchMemory::kBins;
  static constexpr float kBinsOfUnit = 32;  // of z
  static constexpr int kAbove = -1;         // in no bin,
  static constexpr int kBelow = kBins;      // nor here

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }

  template <class Body>
  __device__ void each(Body body) const {
    each_element(row_, cols_, all_, body);
  }

  // Between keys of one value only indices are left to tell apart.
  __device__ KeyRange narrowed(KeyRange range) const {
    if (range.low >> 32 == (range.high - 1) >> 32) {
      range.low = max(range.low, range.low >> 32 << 32 | ~static_cast<unsigned>(cols_ - 1));
    }
    return range;
  }

  // The first bin has the largest.
  __device__ int bin_of_logit(float x) const {
    return min(max(0, __float2int_rz((m_ - row_.z(x)) * kBinsOfUnit)), kBins - 1);  // of a NaN: 0
  }

  // What falls into a bin. Bins do not rise with x, so the least word of a bin, and of the one
  // before, can be bisected.
  __device__ KeyRange range_of_logits(int bin) const {
    const auto least_word = [&](int b) {
      unsigned low = ordered(minus_infinity<float>());
      unsigned high = ordered(-minus_infinity<float>());
      while (low < high) {
        const unsigned middle = low + (high - low) / 2;
        if (bin_of_logit(value_of_word(middle)) <= b) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      return static_cast<Key>(low) << 32;
    };
    return {bin == kBins - 1 ? 0 : least_word(bin), bin == 0 ? ~Key{0} : least_word(bin - 1)};
  }

  // By weights that are rounded to units; bin_of(x, index) may be one of the two that are none. The
  // last where there is not enough.
  template <class BinOf, class Weigh>
  __device__ int bin_of_limit(double wanted, float unit, int last, BinOf bin_of,
                              Weigh weigh) const {
    for (int b = thread(); b < kBins; b += threads()) memory_.bins[b] = 0;
    if (thread() == 0) shared_.first = last;
    __syncthreads();
    double above = 0;
    each([&](float x, unsigned index) {
      const int bin = bin_of(x, index);
      if (bin == kBelow) return;
      const float weight = weigh(x, index);
      if (bin == kAbove) {
        above += static_cast<double>(weight);
        return;
      }
      const auto units = static_cast<unsigned>(__float2uint_rn(weight * unit));
      if (units != 0) atomicAdd(&memory_.bins[bin], units);
    });
    above = BlockFold<Add<double>>(shared_.sums).all(above);
    const Run own(kBins);
    double mine = 0;
    for (int b = own.begin; b < own.end; ++b) mine += memory_.bins[b];
    double sum = prefix_of(mine, shared_.sums).before;
    for (int b = own.begin; b < own.end; ++b) {
      sum += memory_.bins[b];
      if (sum >= (wanted - above) * static_cast<double>(unit)) {
        atomicMin(&shared_.first, b);
        break;
      }
    }
    __syncthreads();
    return shared_.first;
  }

  // The keys of a range, as far as there is room, and exact sums.
  template <class Weigh>
  __device__ KeyWeights take(const KeyRange& range, Weigh weigh) const {
    if (thread() == 0) shared_.count = 0;
    __syncthreads();
    KeyWeights mine{};
    const float least = value_of(range.low);  // nothing is below a NaN
    each([&](float x, unsigned index) {
      if (x < least) return;
      const Key key = key_of(x, index);
      if (key < range.low) return;
      const auto weight = static_cast<double>(weigh(x, index));
      if (key >= range.high) {
        mine.above += weight;
        return;
      }
      mine.inside += weight;
      const int at = atomicAdd(&shared_.count, 1);
      if (at < memory_.room) memory_.keys[at] = key;
    });
    const BlockFold<Add<double>> block(shared_.sums);
    mine.above = block.all(mine.above);
    mine.few =
        shared_.count <= memory_.room;  // between two barriers: the next turn begins with none
    mine.inside = block.all(mine.inside);
    return mine;
  }

  // Of the keys that were taken, the one with which there is enough; `low` if there is none.
  template <class Weigh>
  __device__ Key first_with(double wanted, Key low, Weigh weigh) const {
    const int n = shared_.count;
    int size = 2;
    while (size < n) size *= 2;
    for (int i = n + thread(); i < size; i += threads()) memory_.keys[i] = 0;
    if (thread() == 0) shared_.first = n;
    sort_descending(memory_.keys, size);
    const Run own(n);
    const auto weight = [&](int i) {
      const Key key = memory_.keys[i];
      return static_cast<double>(weigh(value_of(key), index_of(key)));
    };
    double mine = 0;
    for (int i = own.begin; i < own.end; ++i) mine += weight(i);
    double sum = prefix_of(mine, shared_.sums).before;
    for (int i = own.begin; i < own.end; ++i) {
      sum += weight(i);
      if (sum >= wanted) {
        atomicMin(&shared_.first, i);
        break;
      }
    }
    __syncthreads();
    const int first = shared_.first;
    __syncthreads();
    return first < n ? memory_.keys[first] : low;
  }

  SearchShared& shared_;
  SearchMemory memory_;
  const Row& row_;
  int cols_;
  float m_;
  bool all_;
};

}  // namespace onepass::ops::select
