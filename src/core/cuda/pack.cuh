// Rows in packs: 16 bytes at addresses that are multiples of 16, the widest access a thread has.
//
// A row may begin anywhere between two such addresses and end anywhere. Its first and last pack are
// then partial: they are read element by element, −inf standing in for what is not the row's, and
// written as far as they are. So every kernel has one loop, and no head or tail of its own.
#pragma once

#include <cstdint>

#include "core/cuda/number.cuh"
#include "core/state.hpp"

namespace onepass {

template <class T>
struct alignas(16) Pack {
  static constexpr int kWords = 4;
  static constexpr int kLanes = 16 / sizeof(T);
  unsigned word[kWords];
};

template <class T, int N, class Value>
__device__ inline void widen(const Pack<T> (&packs)[N], Value (&values)[N * Pack<T>::kLanes]) {
#pragma unroll
  for (int i = 0; i < N * Pack<T>::kLanes; ++i) {
    values[i] = widened<T>(packs[i / Pack<T>::kLanes].word, i % Pack<T>::kLanes);
  }
}

// The largest element of a few words, NaN if one is.
template <class T, int N>
__device__ inline float largest_or_nan(const unsigned (&words)[N]) {
  static_assert(N > 1);
  unsigned two[2] = {words[0], words[1]};  // two chains
#pragma unroll
  for (int i = 2; i < N; ++i) two[i % 2] = larger_word<T>(two[i % 2], words[i]);
  const unsigned m[1] = {larger_word<T>(two[0], two[1])};
  if constexpr (sizeof(T) == 4) return element<T>(m, 0);
  const unsigned low = __float_as_uint(widened<T>(m, 0));
  const unsigned high = __float_as_uint(widened<T>(m, sizeof(T) == 2 ? 1 : 0));
  return __uint_as_float(larger_word<float>(low, high));
}

// And of a few packs.
template <class T, int N>
__device__ inline float largest_or_nan(const Pack<T> (&packs)[N]) {
  constexpr int kWords = Pack<T>::kWords;
  unsigned words[N * kWords];
#pragma unroll
  for (int i = 0; i < N * kWords; ++i) words[i] = packs[i / kWords].word[i % kWords];
  return largest_or_nan<T>(words);
}

// The largest of each pack or half a pack in a word: of 16-bit elements those at even and those at
// odd places. NaN if one is.
template <class T, int N, int M>
__device__ inline void maxima_or_nan(const Pack<T> (&packs)[N], unsigned (&largest)[M]) {
  static_assert(M == N || M == 2 * N);
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const auto& word = packs[m * N / M].word;
    if constexpr (M == N) {
      largest[m] =
          larger_word<T>(larger_word<T>(word[0], word[1]), larger_word<T>(word[2], word[3]));
    } else {
      largest[m] = larger_word<T>(word[m % 2 * 2], word[m % 2 * 2 + 1]);
    }
  }
}

// Which of up to 32 elements are above v, a bit each; word(w) is the w-th of their words. Of 16-bit
// elements those at odd places have the upper bits.
template <class T, int Words, class Word>
__device__ inline unsigned above(float v, Word word) {
  static_assert(Words * 4 / sizeof(T) <= 32);
  unsigned bits = 0;
#pragma unroll
  for (int w = Words - 1; w >= 0; --w) {
    if constexpr (sizeof(T) == 2) {
      bits |= above_word<T>(word(w), v) & 0x10001U << w;
    } else {
      // As the sign of a difference, which takes a compare and a choice fewer; a NaN's is positive.
      bits = __funnelshift_l(__float_as_uint(v - __uint_as_float(word(w))), bits, 1);
    }
  }
  return bits;
}

// Of `Count` packs from `First` on, or of all.
template <int First, int Count, class T, int N>
__device__ inline unsigned above(const Pack<T> (&packs)[N], float v) {
  static_assert(First + Count <= N);
  constexpr int kWords = Pack<T>::kWords;
  return above<T, Count * kWords>(
      v, [&](int w) { return packs[First + w / kWords].word[w % kWords]; });
}
template <class T, int N>
__device__ inline unsigned above(const Pack<T> (&packs)[N], float v) {
  return above<0, N>(packs, v);
}

// The element of such a bit, counted from the first pack's first, where packs lie `Apart` from
// each other: of bit 4 p + w it is w of pack p, and of 16-bit elements 2 w, with 16 more one
// further. As products, which take fewer instructions than parts of the bit. Of no bit, −1, it is
// one of the first 32, too.
template <class T, int Apart>
__device__ inline int element_of_bit(int bit) {
  constexpr int kPackElements = Apart * Pack<T>::kLanes;
  if constexpr (sizeof(T) == 2) {
    constexpr int kMore = kPackElements - 8;
    return 2 * bit + (bit >> 2) * kMore - (bit >> 4) * (4 * kMore + 31);
  } else {
    return bit < 0 ? 0 : bit + (bit >> 2) * (kPackElements - 4);
  }
}

// A pack from global to shared memory, past the registers and L1. It is there once the thread that
// asked has waited; no other need.
template <class T>
__device__ inline void copy_async(const Pack<T>* from, Pack<T>* to) {
  const auto slot = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot), "l"(from) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What was asked for since the last such call can be waited for by itself: all but the latest N.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Elements that an address lies past the beginning of a pack.
template <class T>
__device__ inline int past_boundary(const void* p) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) / sizeof(T) % Pack<T>::kLanes);
}

// One row of x and of y.
template <class T>
class PackedRow {
 public:
  static constexpr int kLanes = Pack<T>::kLanes;

  __device__ PackedRow(const T* x, T* y, std::int64_t cols)
      : skew_(past_boundary<T>(x)),
        x_(x - skew_),
        y_(y - skew_),
        end_(skew_ + cols),
        same_skew_(past_boundary<T>(y) == skew_) {}

  __device__ std::int64_t packs() const { return (end_ + kLanes - 1) / kLanes; }

  // Pack i of x; past the last one, only −inf.
  __device__ Pack<T> load(std::int64_t i) const { return load_from(x_, i, true); }

  // Pack i of x if it comes before `end`, else only −inf.
  __device__ Pack<T> load(std::int64_t i, std::int64_t end) const {
    return load(i < end ? i : packs());
  }

  // Pack i of y, as this thread stored it.
  __device__ Pack<T> stored(std::int64_t i) const { return load_from(y_, i, same_skew_); }

  // values[k] · factor into pack i; nothing past the last one.
  __device__ void store(std::int64_t i, const float* values, float factor) const {
    const std::int64_t first = i * kLanes;
    float scaled[kLanes];
#pragma unroll
    for (int k = 0; k < kLanes; ++k) scaled[k] = values[k] * factor;
    if (whole(first) && same_skew_) {
      Pack<T> pack;
      narrow_words<T>(scaled, pack.word);
      *reinterpret_cast<Pack<T>*>(y_ + first) = pack;
      return;
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      if (inside(first + k)) y_[first + k] = narrow<T>(scaled[k]);
    }
  }

 private:
  __device__ Pack<T> load_from(const T* from, std::int64_t i, bool aligned) const {
    const std::int64_t first = i * kLanes;
    if (whole(first) && aligned) return *reinterpret_cast<const Pack<T>*>(from + first);
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const std::int64_t c = first + k;
      set_element(pack.word, k, inside(c) ? from[c] : narrow<T>(minus_infinity<float>()));
    }
    return pack;
  }

  __device__ bool inside(std::int64_t c) const { return c >= skew_ && c < end_; }
  __device__ bool whole(std::int64_t first) const {
    return first >= skew_ && first + kLanes <= end_;
  }

  int skew_;  // elements of the first pack that lie before the row
  const T* x_;
  T* y_;
  std::int64_t end_;  // of the row, counted from the first pack
  bool same_skew_;    // y lies as x does: whole packs can be stored as such
};

}  // namespace onepass
