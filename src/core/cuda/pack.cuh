// Rows in packs: 16 bytes at multiples of 16, the widest access of a thread.
//
// A row may begin and end between two such addresses. Its first and last pack are then partial:
// they are read element by element, with −inf in place of elements outside the row, and written
// only within the row. So every kernel has one loop, without a head or tail of its own.
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

// The largest element of a few words, or NaN if any is NaN.
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

// The largest element of a few packs, or NaN if any is NaN.
template <class T, int N>
__device__ inline float largest_or_nan(const Pack<T> (&packs)[N]) {
  constexpr int kWords = Pack<T>::kWords;
  unsigned words[N * kWords];
#pragma unroll
  for (int i = 0; i < N * kWords; ++i) words[i] = packs[i / kWords].word[i % kWords];
  return largest_or_nan<T>(words);
}

// The largest element of each pack or half pack as a word, or NaN if any is NaN. For 16-bit
// elements the word holds the largest of the even elements and that of the odd ones.
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

// Which of up to 32 elements are above v, one bit each; word(w) is the w-th of their words. For
// 16-bit elements, the upper bits stand for the odd elements.
template <class T, int Words, class Word>
__device__ inline unsigned above(float v, Word word) {
  static_assert(Words * 4 / sizeof(T) <= 32);
  unsigned bits = 0;
#pragma unroll
  for (int w = Words - 1; w >= 0; --w) {
    if constexpr (sizeof(T) == 2) {
      bits |= above_word<T>(word(w), v) & 0x10001U << w;
    } else {
      // The sign of a difference saves a compare and a select; a NaN's is positive.
      bits = __funnelshift_l(__float_as_uint(v - __uint_as_float(word(w))), bits, 1);
    }
  }
  return bits;
}

// The same bits for `Count` packs from `First` on, or for all.
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

// The element of such a bit, counted from the first element of the first pack, for packs that are
// `Apart` from each other. Bit 4 p + w is element w of pack p; for 16-bit elements it is element 2
// w, and bit 16 + 4 p + w the one after. Products take fewer instructions than fields of the bit.
// For no bit, −1, the result is also below 32.
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

// Copies a pack from global to shared memory without registers or L1. It has arrived once the
// thread that issued the copy has waited.
template <class T>
__device__ inline void copy_async(const Pack<T>* from, Pack<T>* to) {
  const auto slot = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot), "l"(from) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Makes the copies since the last call a group; then waits for all groups but the latest N.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// The distance of an address from the beginning of its pack, in elements.
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

  // Pack i of x; only −inf past the last one.
  __device__ Pack<T> load(std::int64_t i) const { return load_from(x_, i, true); }

  // Pack i of x; only −inf from `end` on.
  __device__ Pack<T> load(std::int64_t i, std::int64_t end) const {
    return load(i < end ? i : packs());
  }

  // Pack i of y, as this thread has stored it.
  __device__ Pack<T> stored(std::int64_t i) const { return load_from(y_, i, same_skew_); }

  // Stores values[k] · factor in pack i, and nothing past the last one.
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

  int skew_;  // elements of the first pack before the row
  const T* x_;
  T* y_;
  std::int64_t end_;  // of the row, counted from the first pack
  bool same_skew_;    // x and y have the same skew, so that whole packs can be stored
};

}  // namespace onepass
