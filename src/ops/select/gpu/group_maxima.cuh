// The largest elements that groups of a row have shown: of as many as K groups, the K-th is a limit
// for the row's K largest.
#pragma once

#include "core/cuda/pack.cuh"
#include "ops/select/gpu/limit.cuh"

namespace onepass {

// Words between which a limit is looked for: n groups have shown `low` or more, none more than
// `high`. raise() brings `low` up until they are K or a few more; from(word) tells how many have
// shown a word or more.
struct Bound {
  unsigned low, high;
  int n;

  template <class From>
  __device__ void raise(int k, From from) {
    low = min(low, high);
    while (n > k + k / 8 + 4 && low < high) {
      const unsigned middle = low + (high - low + 1) / 2;
      const int above = from(middle);
      if (above >= k) {
        low = middle;
        n = above;
      } else {
        high = middle - 1;
      }
    }
  }
};
// Of groups that have shown nothing.
__device__ inline unsigned nothing_shown() { return ordered(minus_infinity<float>()); }

// G groups of a lane's elements, in words as they are stored. A group that has met a NaN
// has shown nothing.
template <class Element, int G>
class GroupMaxima {
 public:
  static constexpr int kGroups = G;
  static constexpr int kWords =
      G * static_cast<int>(sizeof(Element)) / 4;  // of a group each, or two

  __device__ GroupMaxima() {
    const float nothing[2] = {minus_infinity<float>(), minus_infinity<float>()};
    unsigned word[1];
    narrow_words<Element>(nothing, word);
#pragma unroll
    for (unsigned& own : word_) own = word[0];
  }

  // The largest of all packs, NaN if one is.
  template <int N>
  __device__ float add(const Pack<Element> (&packs)[N]) {
    unsigned largest[kWords];
    maxima_or_nan(packs, largest);
#pragma unroll
    for (int w = 0; w < kWords; ++w) word_[w] = larger_word<Element>(word_[w], largest[w]);
    return largest_or_nan<Element>(largest);
  }

  // What a group has shown, in words that are larger where the value is.
  __device__ unsigned operator[](int g) const {
    const float x = widened<Element>(word_, g);
    return ordered(x == x ? x : minus_infinity<float>());
  }

  // Half as many groups.
  __device__ GroupMaxima<Element, G / 2> halved() const {
    GroupMaxima<Element, G / 2> half;
#pragma unroll
    for (int w = 0; w < kWords / 2; ++w) {
      half.word_[w] = larger_word<Element>(word_[w], word_[w + kWords / 2]);
    }
    return half;
  }

  // Such words: of the finite the smallest, the largest of all, and how many are not below `least`;
  // of those equal to it, if it is 0, not all may count.
  __device__ unsigned lowest() const {
    unsigned low[1] = {0x7FFF7FFFU};  // NaN
#pragma unroll
    for (const unsigned word : word_) low[0] = smaller_finite_word<Element>(low[0], word);
    return min(word_or(low, 0, 0xFFFFFFFFU), word_or(low, 1, 0xFFFFFFFFU));
  }
  __device__ unsigned highest() const {
    unsigned high[1] = {word_[0]};
#pragma unroll
    for (int w = 1; w < kWords; ++w) high[0] = larger_number_word<Element>(high[0], word_[w]);
    return max(word_or(high, 0, 0), word_or(high, 1, 0));
  }
  __device__ int from(unsigned least) const {
    return __popc(
        above<Element, kWords>(value_of_word(least - 1), [&](int w) { return word_[w]; }));
  }

 private:
  template <class, int>
  friend class GroupMaxima;

  // Of the k-th of a word's elements; of a 32-bit one there is but one.
  __device__ static unsigned word_or(const unsigned (&word)[1], int k, unsigned otherwise) {
    const float x = widened<Element>(word, sizeof(Element) == 2 ? k : 0);
    return x == x ? ordered(x) : otherwise;
  }

  unsigned word_[kWords];
};

// The same of groups in words that are larger where the value is.
template <int G>
class OrderedMaxima {
 public:
  static constexpr int kGroups = G;

  __device__ unsigned& operator[](int g) { return word_[g]; }

  __device__ unsigned lowest() const {
    unsigned low = 0xFFFFFFFFU;
#pragma unroll
    for (int g = 0; g < G; ++g) low = word_[g] == nothing_shown() ? low : min(low, word_[g]);
    return low;
  }
  __device__ unsigned highest() const {
    unsigned high = 0;
#pragma unroll
    for (int g = 0; g < G; ++g) high = max(high, word_[g]);
    return high;
  }
  __device__ int from(unsigned least) const {
    int n = 0;
#pragma unroll
    for (int g = 0; g < G; ++g) n += word_[g] >= least ? 1 : 0;
    return n;
  }

 private:
  unsigned word_[G];
};

}  // namespace onepass
