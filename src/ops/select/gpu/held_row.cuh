// A short row in the registers of a few lanes of a warp, its State and its K largest. A warp has 32
// / Lanes rows, and all of them do everything at once.
#pragma once

#include "core/cuda/pack.cuh"
#include "merge/warp.cuh"
#include "merge/warp_rows.cuh"
#include "ops/select/gpu/limit.cuh"
#include "ops/select/gpu/upper.cuh"
#include "rows/gpu/logits.cuh"

namespace onepass::ops::select {

// What the row's lanes before this one have, and all of them.
struct Counted {
  int before, all;
};
template <int Lanes>
__device__ inline Counted count_before(int mine) {
  const int until = sum_until<Lanes>(mine);
  return {until - mine, __shfl_sync(kAllLanes, until, Lanes - 1, Lanes)};
}

// Keys of what can be any float, and of elements that are stored in 16 bits, in a word: their 19
// upper bits are all there are.
struct LongKeys {
  using Word = Key;
  __device__ static Word key(float x, int column) {
    return key_of(x, static_cast<unsigned>(column));
  }
  __device__ static float value(Word key) { return value_of(key); }
  __device__ static int index(Word key) { return static_cast<int>(index_of(key)); }
  template <int N>
  __device__ static void copy(const Word* from, Word (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const auto two = *reinterpret_cast<const ulonglong2*>(from + i);
      to[i] = two.x, to[i + 1] = two.y;
    }
  }
};
struct ShortKeys {
  using Word = unsigned;
  static constexpr unsigned kColumn = 0x1FFF;
  __device__ static Word key(float x, int column) {
    return (ordered(x) | kColumn) - static_cast<unsigned>(column);
  }
  __device__ static float value(Word key) {
    return __uint_as_float(__float_as_uint(value_of_word(key)) & ~kColumn);
  }
  __device__ static int index(Word key) { return static_cast<int>(~key & kColumn); }
  template <int N>
  __device__ static void copy(const Word* from, Word (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const auto four = *reinterpret_cast<const uint4*>(from + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
  }
};

// All bits of each of two 16-bit elements that is not below v, one of their kind.
template <class In>
__device__ inline unsigned reaching_word(unsigned word, float v) {
  using Pair = std::conditional_t<std::is_same_v<In, F16>, __half2, __nv_bfloat162>;
  const unsigned limits = narrow<In>(v).bits * 0x10001U;
  Pair pair, limit;
  memcpy(&pair, &word, sizeof pair);
  memcpy(&limit, &limits, sizeof limit);
  return __hge2_mask(pair, limit);
}

// What is read once need not be in L1, and few rows come sooner past it.
template <class In>
__device__ inline Pack<In> load_past_l1(const In* from) {
  Pack<In> pack;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(pack.word[0]), "=r"(pack.word[1]), "=r"(pack.word[2]), "=r"(pack.word[3])
               : "l"(from));
  return pack;
}

// Up to Lanes · N elements. They come in packs, to each lane in turn, so that a load has 16 bytes
// where rows allow it. AsStored: what is selected by are the elements themselves, in whole packs.
template <class In, int Lanes, int N, bool AsStored>
class HeldRow {
  static constexpr int P = Pack<In>::kLanes;

 public:
  using Element = In;
  static constexpr bool kAny = !AsStored;  // elements of any type and number, kept as float32
  static_assert((Lanes == 8 || Lanes == 32) && N % P == 0 && N >= 4 && N <= 32);
  static_assert(!kAny || std::is_same_v<In, float>);
  using Keys = std::conditional_t<AsStored && sizeof(In) == 2, ShortKeys, LongKeys>;
  using Word = typename Keys::Word;
  static_assert(Lanes * N <= ShortKeys::kColumn);

  // What the row's lanes share: its elements, as what a lane has in registers it cannot find by
  // a number; keys that may be among the K largest; and these. Of the rows of a warp each
  // begins in other banks.
  struct alignas(16) Room {
    static constexpr int kAtOnce =
        Lanes == 8 ? 12 : 4;  // are looked at; of eight lanes seldom more are there
    static constexpr int kKeys = Lanes == 8 ? 48 : 64;
    In x[Lanes * N];
    Word key[kKeys];
    Word best[Lanes + 16 / sizeof(Word)];
  };

  __device__ HeldRow(int cols, Room& room)
      : lane_(static_cast<int>(threadIdx.x % Lanes)), cols_(cols), room_(room) {}

  __device__ int lane() const { return lane_; }
  // Of the lane's j-th element; its elements that exist come before those that do not.
  __device__ int column(int j) const {
    const auto at = static_cast<unsigned>(j);
    return static_cast<int>((at / P * Lanes + lane_) * P + at % P);
  }

  // Past the row's end is −inf. In packs: cols and the row's address are multiples of theirs.
  __device__ void load(const In* row, float (&x)[N]) requires(!kAny) {
#pragma unroll
    for (int v = 0; v < N / P; ++v) {
      packs_[v] = DenseLogits<In>::nothing();
      if (column(v * P) < cols_) packs_[v] = load_past_l1<In>(row + column(v * P));
    }
    clear_keys();  // while the row is on its way
#pragma unroll
    for (int v = 0; v < N / P; ++v) {
      *reinterpret_cast<Pack<In>*>(room_.x + column(v * P)) = packs_[v];
    }
    widen(packs_, x);
    __syncwarp();
  }

  // The same of elements of any type and number, `stride` apart: kept as float32, so that one
  // kernel serves all types. Four neighbours are one load where they lie so.
  __device__ void load(const void* row, DType dtype, std::int64_t stride,
                       float (&x)[N]) requires(kAny) {
    clear_keys();
    switch (dtype) {
      case DType::f16: load_as(static_cast<const F16*>(row), stride, x); break;
      case DType::bf16: load_as(static_cast<const BF16*>(row), stride, x); break;
      default: load_as(static_cast<const float*>(row), stride, x);
    }
#pragma unroll
    for (int j = 0; j < N; j += P) {
      *reinterpret_cast<float4*>(room_.x + column(j)) =
          make_float4(x[j], x[j + 1], x[j + 2], x[j + 3]);
    }
    __syncwarp();
  }

  // The element of any column.
  __device__ float at(int column) const { return widen(room_.x[column]); }

  // A lane's elements make a few lists. The K-th of all lists' largest is what at least K reach,
  // and seldom many more; of eight lanes, which have up to eight, it is the eighth.
  __device__ Upper upper(const float (&x)[N], int k) const {
    constexpr int kLists = Lanes == 8 ? 4 : 2;
    float largest[kLists];
    if constexpr (kPaired) {
      unsigned two[kLists / 2];  // lists each
#pragma unroll
      for (int w = 0; w < N / 2; ++w) {
        unsigned& of = two[w % (kLists / 2)];
        of = w < kLists / 2 ? word(w) : larger_word<In>(of, word(w));
      }
#pragma unroll
      for (int i = 0; i < kLists; ++i) largest[i] = widened<In>(two, i);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float& of = largest[j % kLists];
        of = j < kLists ? x[j] : larger_or_nan(of, x[j]);
      }
    }
    if constexpr (Lanes == 8) return upper_eight(largest);
    if constexpr (Lanes == 32) return upper_k(k, largest);
  }

  // Of all logits x · factor, m being the largest x, for each lane. The factor is positive.
  __device__ static State<float> state(const float (&x)[N], float m, float factor) {
    const float s = shift(m);
    float d[4] = {};
#pragma unroll
    for (int j = 0; j < N; ++j) d[j % 4] += power_of_two((x[j] - s) * (factor * kLog2E));
    return {m * factor, group_fold((d[0] + d[1]) + (d[2] + d[3]), Add<float>(), Lanes)};
  }

  // The K largest of x, K up to Lanes, where at least K reach the limit: lane i has the key of the
  // i-th. x_at(c) is x of column c. A row with a NaN has keys of some sort.
  template <class At>
  __device__ Word largest(const float (&x)[N], float limit, int k, At x_at) const {
    unsigned reach = reaching(x, limit) & existing();
    const Counted counted = count_before<Lanes>(__popc(reach));
    if (__any_sync(kAllLanes, counted.all > Room::kKeys)) return one_by_one(k, x_at);
    // Two at a time: neither waits for the other.
    for (Word* to = room_.key + counted.before; reach != 0; to += 2) {
      const int first = take_highest(reach);
      const bool more = reach != 0;
      const int second = more ? take_highest(reach) : first;
      const float values[2] = {x_at(first), x_at(second)};
      to[0] = Keys::key(values[0], first);
      if (more) to[1] = Keys::key(values[1], second);
    }
    __syncwarp();
    put_in_order(counted.all);
    __syncwarp();
    return room_.best[lane_];
  }

 private:
  // Two elements of a word at once, where words hold two.
  static constexpr bool kPaired = AsStored && sizeof(In) == 2;

  __device__ unsigned word(int w) const { return packs_[w / 4].word[w % 4]; }

  __device__ void clear_keys() const {
    constexpr int kWords = sizeof(Word) * Room::kKeys / sizeof(uint4);
#pragma unroll
    for (int i = 0; i < kWords; i += Lanes) {
      if (kWords % Lanes == 0 || i + lane_ < kWords) {
        reinterpret_cast<uint4*>(room_.key)[i + lane_] = {};
      }
    }
  }

  // A bit for each element from the limit on. As floats: where the difference is not negative. Of
  // an infinity and itself it is NaN, whose sign is positive; of −0 and a limit of 0 it would be
  // −0, but of −0 and −0 it is 0.
  __device__ unsigned reaching(const float (&x)[N], float limit) const {
    if constexpr (kPaired) {
      unsigned bits = 0;
#pragma unroll
      for (int w = 0; w < N / 2; ++w) bits |= reaching_word<In>(word(w), limit) & 0x10001U << w;
      return bits;
    } else {
      unsigned below = 0;
      limit = limit == 0 ? -0.F : limit;
#pragma unroll
      for (int j = N - 1; j >= 0; --j) {
        below = __funnelshift_l(__float_as_uint(x[j] - limit), below, 1);
      }
      return ~below;
    }
  }

  template <class Stored>
  __device__ void load_as(const Stored* row, std::int64_t stride, float (&x)[N]) const {
    struct alignas(P * sizeof(Stored)) Four {
      Stored x[P];
    };
    const bool fours =
        stride == 1 && cols_ % P == 0 && reinterpret_cast<std::uintptr_t>(row) % sizeof(Four) == 0;
    if (__all_sync(kAllLanes, fours)) {  // as one: the warp has other rows, and all meet below
#pragma unroll
      for (int j = 0; j < N; j += P) {
        const int c = column(j);
        Four four{};
        if (c < cols_) four = *reinterpret_cast<const Four*>(row + c);
#pragma unroll
        for (int k = 0; k < P; ++k) {
          x[j + k] = c < cols_ ? widen(four.x[k]) : minus_infinity<float>();
        }
      }
      return;
    }
#pragma unroll 4
    for (int c = lane_; c < Lanes * N; c += Lanes) {
      room_.x[c] = c < cols_ ? widen(row[c * stride]) : minus_infinity<float>();
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = room_.x[column(j)];
  }

  // A bit for each of the lane's elements.
  __device__ unsigned existing() const {
    const int packs = cols_ / P - lane_;  // from the lane's first on
    int own = packs <= 0 ? 0 : (packs + Lanes - 1) / Lanes * P;
    if constexpr (kAny) own += cols_ / P % Lanes == lane_ ? cols_ % P : 0;
    if constexpr (kPaired) return ((1U << own / 2) - 1) * 0x10001U;
    return own >= 32 ? ~0U : (1U << own) - 1;
  }

  // The highest bit goes; the column of its element.
  __device__ int take_highest(unsigned& bits) const {
    const int bit = 31 - __clz(static_cast<int>(bits));
    bits ^= 1U << bit;
    return kPaired ? element_of_bit<In, Lanes>(bit) + lane_ * P : column(bit);
  }

  // The first keys of the room, no two alike, to their places: a key's is how many are before it.
  // Past `count` they are 0.
  __device__ void put_in_order(int count) const {
    constexpr int kOwn = 2;
#pragma unroll 1
    for (int at = lane_; at < count; at += kOwn * Lanes) {
      Word own[kOwn];
      int before[kOwn] = {};
#pragma unroll
      for (int i = 0; i < kOwn; ++i) own[i] = room_.key[at + i * Lanes];
#pragma unroll 1
      for (int i = 0; i < count; i += Room::kAtOnce) {
        Word others[Room::kAtOnce];
        Keys::copy(room_.key + i, others);
#pragma unroll
        for (const Word other : others) {
#pragma unroll
          for (int o = 0; o < kOwn; ++o) count_if_larger(before[o], other, own[o]);
        }
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (before[i] < Lanes) room_.best[before[i]] = own[i];
      }
    }
  }

  // Where more reach the limit than there is room for: the largest, K times.
  template <class At>
  __device__ Word one_by_one(int k, At x_at) const {
    Word kept = 0;
    Word last = ~Word{0};
#pragma unroll 1
    for (int i = 0; i < k; ++i) {
      Word mine = 0;
#pragma unroll 4
      for (int j = 0; j < N; ++j) {
        const int c = column(j);
        const Word key = c < cols_ ? Keys::key(x_at(c), c) : 0;
        mine = key < last && key > mine ? key : mine;
      }
#pragma unroll
      for (int distance = Lanes / 2; distance > 0; distance /= 2) {
        mine = max(mine, exchange(mine, distance));
      }
      last = mine;
      if (lane_ == i) kept = last;
    }
    return kept;
  }

  int lane_, cols_;
  Room& room_;
  Pack<In> packs_[N / P];
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

}  // namespace onepass::ops::select
