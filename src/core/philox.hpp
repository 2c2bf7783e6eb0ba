// Philox4x32-10 (Salmon et al., SC 2011): random words as a function of a key and a counter, so
// that every element of every row has its own words and no generator has a state.
#pragma once

#include <array>
#include <cstdint>

#include "core/annotate.hpp"

namespace onepass {

using Words4 = std::array<std::uint32_t, 4>;

ONEPASS_HD constexpr Words4 philox(std::uint64_t key, Words4 counter) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ k1,
               static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// The words of four tokens. The key is the row's seed, the counter its offset and the tokens'
// index.
ONEPASS_HD constexpr Words4 words_of_tokens(std::uint64_t seed, std::uint64_t offset,
                                            std::int64_t first_token) {
  const auto group = static_cast<std::uint64_t>(first_token) / 4;
  return philox(seed,
                {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
                 static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32)});
}

}  // namespace onepass
