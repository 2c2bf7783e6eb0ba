// A short row in the registers of a few lanes of a warp, its State and its K largest. A warp has 32 / Lanes rows, and
// all of them do everything at once.
#pragma once

#include "core/pack.cuh"
#include "merge/warp.cuh"
#include "ops/row/logits.cuh"
#include "ops/topk/key.cuh"

namespace onepass::ops::topk {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Where the keys of a row meet: two for each of its lanes, and one so that the rows of a warp lie in different banks.
template <int Lanes>
struct KeySlots {
  static constexpr int kRoom = 2 * Lanes;
  Key key[kRoom + 1];
};

// What the row's lanes before this one have, and all of them.
struct Counted {
  int before, all;
};
template <int Lanes>
__device__ inline Counted count_before(int mine) {
  const int until = sum_until<Lanes>(mine);
  return {until - mine, __shfl_sync(kAllLanes, until, Lanes - 1, Lanes)};
}

// Larger words first.
__device__ inline void order(unsigned& a, unsigned& b) {
  const unsigned larger = max(a, b);
  b = min(a, b);
  a = larger;
}

// Words that fall and then rise, or a turn of such, larger first.
template <int N>
__device__ inline void sort_bitonic(unsigned (&w)[N]) {
#pragma unroll
  for (int apart = N / 2; apart > 0; apart /= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if ((i & apart) == 0) order(w[i], w[i + apart]);
    }
  }
}

// The eighth largest word of eight lanes that have four each.
__device__ inline unsigned eighth_largest(unsigned (&mine)[4]) {
  order(mine[0], mine[1]);
  order(mine[3], mine[2]);
  sort_bitonic(mine);
  unsigned w[8];  // of two lanes, then the largest of four
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    w[i] = mine[i];
    w[7 - i] = exchange(mine[i], 1);
  }
  sort_bitonic(w);
  unsigned other[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) other[i] = exchange(w[7 - i], 2);
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = max(w[i], other[i]);
  sort_bitonic(w);
#pragma unroll
  for (int i = 0; i < 8; ++i) other[i] = exchange(w[7 - i], 4);
  unsigned least = ~0U;
#pragma unroll
  for (int i = 0; i < 8; ++i) least = min(least, max(w[i], other[i]));
  return least;
}

// The K-th largest word of 32 lanes that have two each.
__device__ inline unsigned largest_but(int k, unsigned (&mine)[2]) {
  order(mine[0], mine[1]);
  unsigned best = 0;
#pragma unroll 1
  for (int found = 0; found < k;) {
    best = __reduce_max_sync(kAllLanes, mine[0]);
    const bool own = mine[0] == best;
    found += __popc(__ballot_sync(kAllLanes, own));
    mine[0] = own ? mine[1] : mine[0];
    mine[1] = own ? 0 : mine[1];
  }
  return best;
}

// Up to Lanes · N elements. They come in packs of P, to each lane in turn, so that a load has 16 bytes where rows allow it.
template <int Lanes, int N, int P>
class HeldRow {
 public:
  static constexpr int kPack = P;
  static_assert((Lanes == 8 || Lanes == 32) && N % P == 0 && N >= 4 && N <= 32);

  __device__ explicit HeldRow(int cols)
      : lane_(static_cast<int>(threadIdx.x % Lanes)), cols_(cols) {}

  __device__ int lane() const { return lane_; }
  // Of the lane's j-th element; its elements that exist come before those that do not.
  __device__ int column(int j) const { return (j / P * Lanes + lane_) * P + j % P; }

  // Past the row's end is −inf. With packs, cols and the row's address are multiples of theirs.
  template <class In>
  __device__ void load(const In* row, std::int64_t stride, float (&x)[N]) const {
    if constexpr (P > 1) {
      static_assert(P == Pack<In>::kLanes);
      Pack<In> packs[N / P];
#pragma unroll
      for (int v = 0; v < N / P; ++v) {
        packs[v] = DenseLogits<In>::nothing();
        if (column(v * P) < cols_) {
          packs[v] = *reinterpret_cast<const Pack<In>*>(row + column(v * P));
        }
      }
      widen(packs, x);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        x[j] = column(j) < cols_ ? widen(row[column(j) * stride]) : minus_infinity<float>();
      }
    }
  }

  // A lane's elements in a few lists, and the largest of each; NaN where one is.
  static constexpr int kLists = Lanes == 8 ? 4 : 2;
  struct Lists {
    float largest[kLists];
  };
  __device__ static Lists lists(const float (&x)[N]) {
    Lists of;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float& largest = of.largest[j % kLists];
      largest = j < kLists ? x[j] : larger_or_nan(largest, x[j]);
    }
    return of;
  }

  // Of all logits x · factor, for each lane. The factor is positive.
  __device__ static State<float> state(const float (&x)[N], const Lists& lists, float factor) {
    float m = lists.largest[0];
#pragma unroll
    for (int i = 1; i < kLists; ++i) m = larger_or_nan(m, lists.largest[i]);
#pragma unroll
    for (int distance = Lanes / 2; distance > 0; distance /= 2) {
      m = larger_or_nan(m, exchange(m, distance));
    }
    const float s = shift(m);
    float d[4] = {};
#pragma unroll
    for (int j = 0; j < N; ++j) d[j % 4] += power_of_two((x[j] - s) * (factor * kLog2E));
    return {m * factor, group_fold((d[0] + d[1]) + (d[2] + d[3]), Add<float>(), Lanes)};
  }

  // The K largest of x, K up to Lanes: lane i has the key of the i-th. again(c) is the x of column c once more: what a lane
  // has in its registers it cannot find by a number. A row with a NaN has keys of some sort.
  template <class Again>
  __device__ Key largest(const float (&x)[N], const Lists& lists, int k, KeySlots<Lanes>& slots,
                         Again again) const {
    const float limit = limit_for(lists, k);
    unsigned reach = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) reach |= x[j] >= limit ? 1U << j : 0;
    reach &= existing();
    const Counted counted = count_before<Lanes>(__popc(reach));
    if (__any_sync(kAllLanes, counted.all > slots.kRoom)) return one_by_one(k, again);
    __syncwarp();  // nobody reads the keys of before any more
    for (Key* to = slots.key + counted.before; reach != 0; reach &= reach - 1) {
      const int c = column(__ffs(static_cast<int>(reach)) - 1);
      *to++ = key_of(again(c), static_cast<unsigned>(c));
    }
    __syncwarp();
    // A key's place is how many are before it.
    const bool first = lane_ < counted.all;
    const bool second = lane_ + Lanes < counted.all;
    const Key a = first ? slots.key[lane_] : 0;
    const Key b = second ? slots.key[lane_ + Lanes] : 0;
    int before_a = 0;
    int before_b = 0;
    for (int i = 0; i < counted.all; ++i) {
      const Key other = slots.key[i];
      before_a += other > a ? 1 : 0;
      before_b += other > b ? 1 : 0;
    }
    __syncwarp();
    if (first) slots.key[before_a] = a;
    if (second) slots.key[before_b] = b;
    __syncwarp();
    return slots.key[lane_];
  }

 private:
  // A bit for each of the lane's elements.
  __device__ unsigned existing() const {
    const int packs = cols_ / P - lane_;  // from the lane's first on
    const int own = packs <= 0 ? 0 : (packs + Lanes - 1) / Lanes * P;
    return own >= 32 ? ~0U : (1U << own) - 1;
  }

  // At least K reach it, and seldom many more: of the largest of all 32 or 64 lists it is the K-th, or, where eight is
  // as many as there can be, the eighth.
  __device__ static float limit_for(const Lists& lists, int k) {
    unsigned word[kLists];
#pragma unroll
    for (int i = 0; i < kLists; ++i) word[i] = ordered(lists.largest[i]);
    if constexpr (Lanes == 8) return value_of_word(eighth_largest(word));
    if constexpr (Lanes == 32) return value_of_word(largest_but(k, word));
  }

  // Where more reach the limit than there is room for: the largest, K times.
  template <class Again>
  __device__ Key one_by_one(int k, Again again) const {
    Key kept = 0;
    Key last = ~Key{0};
#pragma unroll 1
    for (int i = 0; i < k; ++i) {
      Key mine = 0;
#pragma unroll 4
      for (int j = 0; j < N; ++j) {
        const int c = column(j);
        const Key key = c < cols_ ? key_of(again(c), static_cast<unsigned>(c)) : 0;
        mine = key < last && key > mine ? key : mine;
      }
      last = group_fold(mine, LargestKey(), Lanes);
      if (lane_ == i) kept = last;
    }
    return kept;
  }

  int lane_, cols_;
};

// Calls body.operator()<Lanes, N>() with what a plan has for rows of `cols`.
template <class Body>
Status with_held(int lanes, std::int64_t cols, Body body) {
  if (lanes == 8) {
    if (cols <= 8 * 8) return body.template operator()<8, 8>();
    return body.template operator()<8, 32>();
  }
  if (cols <= 32 * 8) return body.template operator()<32, 8>();
  if (cols <= 32 * 24) return body.template operator()<32, 24>();
  return body.template operator()<32, 32>();
}

}  // namespace onepass::ops::topk
