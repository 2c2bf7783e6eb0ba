// A short row in the registers of a few lanes of a warp, its State and its K largest. A warp has 32 / Lanes rows, and
// all of them do everything at once.
#pragma once

#include "core/pack.cuh"
#include "merge/warp.cuh"
#include "ops/topk/key.cuh"

namespace onepass::ops::topk {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Where the keys of a row meet: two for each of its lanes, and one so that the rows of a warp lie in different banks.
template <int Lanes>
struct KeySlots {
  static constexpr int kRoom = 2 * Lanes;
  Key key[kRoom + 1];
};

// The largest word of the row, for each of its lanes.
template <int Lanes>
__device__ inline unsigned largest_word(unsigned mine) {
  if constexpr (Lanes == 32) return __reduce_max_sync(kAllLanes, mine);
#pragma unroll
  for (int distance = Lanes / 2; distance > 0; distance /= 2) {
    mine = max(mine, exchange(mine, distance));
  }
  return mine;
}

// What the row's lanes before this one have, and all of them.
struct Counted {
  int before, all;
};
template <int Lanes>
__device__ inline Counted count_before(int mine, int lane) {
  int until = mine;
#pragma unroll
  for (int apart = 1; apart < Lanes; apart *= 2) {
    const int other = __shfl_up_sync(kAllLanes, until, apart, Lanes);
    if (lane >= apart) until += other;
  }
  return {until - mine, __shfl_sync(kAllLanes, until, Lanes - 1, Lanes)};
}

// Larger words first.
__device__ inline void order(unsigned& a, unsigned& b) {
  const unsigned larger = max(a, b);
  b = min(a, b);
  a = larger;
}
__device__ inline void sort_falling(unsigned (&w)[2]) { order(w[0], w[1]); }
__device__ inline void sort_falling(unsigned (&w)[4]) {
  order(w[0], w[1]);
  order(w[2], w[3]);
  order(w[0], w[2]);
  order(w[1], w[3]);
  order(w[1], w[2]);
}

// Up to Lanes · N elements. They come in packs of P, to each lane in turn, so that a load has 16 bytes where rows allow it.
template <int Lanes, int N, int P>
class HeldRow {
 public:
  static_assert(N % P == 0 && N <= 32);

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
        if (column(v * P) < cols_)
          packs[v] = *reinterpret_cast<const Pack<In>*>(row + column(v * P));
      }
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float value = widen(element<In>(packs[j / P].word, j % P));
        x[j] = column(j / P * P) < cols_ ? value : minus_infinity<float>();
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        x[j] = column(j) < cols_ ? widen(row[column(j) * stride]) : minus_infinity<float>();
      }
    }
  }

  // Of all logits x · factor, for each lane. The factor is positive.
  __device__ State<float> state(const float (&x)[N], float factor) const {
    float m = x[0];
#pragma unroll
    for (int j = 1; j < N; ++j) m = larger_or_nan(m, x[j]);
#pragma unroll
    for (int distance = Lanes / 2; distance > 0; distance /= 2) {
      m = larger_or_nan(m, exchange(m, distance));
    }
    const float s = shift(m);
    float d = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) d += power_of_two((x[j] - s) * (factor * kLog2E));
    return {m * factor, group_fold(d, Add<float>(), Lanes)};
  }

  // The K largest of x, K up to Lanes: lane i has the key of the i-th. again(c) is the x of column c once more: what a lane
  // has in its registers it cannot find by a number. A row with a NaN has keys of some sort.
  template <class Again>
  __device__ Key largest(const float (&x)[N], int k, KeySlots<Lanes>& slots, Again again) const {
    const float limit = limit_for(x, k);
    unsigned reach = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) reach |= x[j] >= limit ? 1U << j : 0;
    reach &= existing();
    const Counted counted = count_before<Lanes>(__popc(reach), lane_);
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

  // At least K reach it, and seldom many more: the row's elements are in 32 or 64 lists, of which it is the K-th of
  // the largest.
  __device__ float limit_for(const float (&x)[N], int k) const {
    constexpr int kLists = Lanes < 32 ? 32 / Lanes : 2;
    float largest[kLists];
#pragma unroll
    for (int j = 0; j < N; ++j)
      largest[j % kLists] = j < kLists ? x[j] : fmaxf(largest[j % kLists], x[j]);
    unsigned head[kLists];
#pragma unroll
    for (int i = 0; i < kLists; ++i) head[i] = ordered(largest[i]);
    sort_falling(head);
    const unsigned own_row = (Lanes == 32 ? ~0U : (1U << Lanes) - 1)
                             << (threadIdx.x % kWarp - lane_);
    unsigned limit = 0;
    int found = 0;
#pragma unroll 1
    for (int i = 0; i < k; ++i) {
      const unsigned best = largest_word<Lanes>(head[0]);
      const bool mine = head[0] == best;
      limit = found < k ? best : limit;
      found += __popc(__ballot_sync(kAllLanes, mine) & own_row);
#pragma unroll
      for (int j = 0; j + 1 < kLists; ++j) head[j] = mine ? head[j + 1] : head[j];
      head[kLists - 1] = mine ? 0 : head[kLists - 1];
    }
    return value_of_word(limit);
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
