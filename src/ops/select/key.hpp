// A value and where it is, in one word that orders by value and then by index.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/number.hpp"
#include "core/state.hpp"
#include "ops/select/gpu/key_range.hpp"

namespace onepass {

// Larger floats are larger words, −0 and +0 alike. A NaN does not come here.
__device__ inline unsigned ordered(float z) {
  const unsigned bits = __float_as_uint(z + 0.0F);
  return bits ^ (static_cast<unsigned>(static_cast<int>(bits) >> 31) | 0x80000000U);
}
__device__ inline float value_of_word(unsigned word) {
  return __uint_as_float(word ^
                         (~static_cast<unsigned>(static_cast<int>(word) >> 31) | 0x80000000U));
}

// How far apart the words of different elements are, at least.
template <class Element>
constexpr float step_of_words() {
  return std::is_same_v<Element, BF16> ? 0x1p16F : std::is_same_v<Element, F16> ? 0x1p13F : 1.0F;
}

// Of the element `further` than the one whose index has the complement `from`.
__device__ inline Key key_before(float z, unsigned from, int further) {
  return static_cast<Key>(ordered(z)) << 32 | (from - static_cast<unsigned>(further));
}

// The lower index first: of two keys with one value it is the larger.
__device__ inline Key key_of(float z, unsigned index) { return key_before(z, ~index, 0); }
__device__ inline unsigned word_of(Key key) { return static_cast<unsigned>(key >> 32); }
__device__ inline float value_of(Key key) { return value_of_word(word_of(key)); }
__device__ inline unsigned index_of(Key key) { return ~static_cast<unsigned>(key); }

// The largest key that a smaller value can have: elements from `word` on are above it.
__device__ inline Key just_below(unsigned word) {
  constexpr unsigned minus_zero = 0x7FFFFFFFU;  // no element's: it counts as +0
  const unsigned below = word - 1 == minus_zero ? word - 2 : word - 1;
  return static_cast<Key>(below) << 32 | 0xFFFFFFFFU;
}

// Every finite element is above it.
__device__ inline Key lowest_limit() {
  return static_cast<Key>(ordered(minus_infinity<float>())) << 32 | 0xFFFFFFFFU;
}

// One more if a > b. As a compiler has it, it takes a move besides.
__device__ inline void count_if_larger(int& count, Key a, Key b) {
  asm("{.reg .pred p; setp.gt.u64 p, %1, %2; @p add.s32 %0, %0, 1;}"
      : "+r"(count)
      : "l"(a), "l"(b));
}
__device__ inline void count_if_larger(int& count, unsigned a, unsigned b) {
  asm("{.reg .pred p; setp.gt.u32 p, %1, %2; @p add.s32 %0, %0, 1;}"
      : "+r"(count)
      : "r"(a), "r"(b));
}

struct LargestKey {
  using Value = Key;
  __device__ static Value identity() { return 0; }
  __device__ Value operator()(Value a, Value b) const { return a > b ? a : b; }
};

}  // namespace onepass
