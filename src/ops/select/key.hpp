// A value and its index in one word, whose order is by value, then by index.
#pragma once

#include <bit>
#include <cstdint>

#include "core/annotate.hpp"

namespace onepass {

using Key = unsigned long long;  // as the warp's exchanges call 64 bits

// Larger floats are larger words, −0 and +0 alike. A NaN does not come here.
ONEPASS_HD inline unsigned ordered(float z) {
  const auto bits = std::bit_cast<unsigned>(z + 0.0F);
  return bits ^ (static_cast<unsigned>(static_cast<int>(bits) >> 31) | 0x80000000U);
}
ONEPASS_HD inline float value_of_word(unsigned word) {
  return std::bit_cast<float>(word ^
                              (~static_cast<unsigned>(static_cast<int>(word) >> 31) | 0x80000000U));
}

// The lower index first: of two keys with one value it is the larger.
ONEPASS_HD inline Key key_of(float z, unsigned index) {
  return static_cast<Key>(ordered(z)) << 32 | ~index;
}
ONEPASS_HD inline unsigned word_of(Key key) { return static_cast<unsigned>(key >> 32); }
ONEPASS_HD inline float value_of(Key key) { return value_of_word(word_of(key)); }
ONEPASS_HD inline unsigned index_of(Key key) { return ~static_cast<unsigned>(key); }

struct LargestKey {
  using Value = Key;
  ONEPASS_HD static Value identity() { return 0; }
  ONEPASS_HD Value operator()(Value a, Value b) const { return a > b ? a : b; }
};

}  // namespace onepass
