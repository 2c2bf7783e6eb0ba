// Keys as limits: what an element has to be above, and how words of neighbours are
// compared with it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/element.hpp"
#include "core/state.hpp"
#include "ops/select/gpu/key_range.hpp"
#include "ops/select/key.hpp"

namespace onepass {

// How far apart the words of different elements are, at least.
template <class Element>
constexpr float step_of_words() {
  return std::is_same_v<Element, BF16> ? 0x1p16F : std::is_same_v<Element, F16> ? 0x1p13F : 1.0F;
}

// Of the element `further` than the one whose index has the complement `from`.
__device__ inline Key key_before(float z, unsigned from, int further) {
  return static_cast<Key>(ordered(z)) << 32 | (from - static_cast<unsigned>(further));
}

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

// Adds one if a > b. Written by the compiler, it takes a move besides.
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

// How many of N words, a multiple of four, are larger: four counts, so that none waits for another.
template <int N>
__device__ inline int count_larger(const unsigned* words, unsigned word) {
  int x = 0, y = 0, z = 0, w = 0;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(words + i);
    count_if_larger(x, four.x, word);
    count_if_larger(y, four.y, word);
    count_if_larger(z, four.z, word);
    count_if_larger(w, four.w, word);
  }
  return (x + y) + (z + w);
}

}  // namespace onepass
