// A token by the race that its noise makes of its logit: the largest z + g wins with probability
// exp(z) / Σ exp, whatever else takes part, so that no sum has to be cut in two.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/annotate.hpp"
#include "core/philox.hpp"

namespace onepass {

// Every row's own stream. Of one seed for all rows each makes another by its number.
constexpr std::uint64_t row_seed(std::int64_t seed, bool own, std::int64_t row) {
  return static_cast<std::uint64_t>(seed) +
         (own ? 0 : 0x9E3779B97F4A7C15 * static_cast<std::uint64_t>(row + 1));
}

// −log(E), E exponential: of w in (0, 1) E = −log(1 − w). Large noise comes of small w,
// which is exact there.
ONEPASS_HD inline double gumbel(std::uint32_t word) {
  const double w = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -std::log(-std::log1p(-w));
}

// Whether a token with this word could have noise above `least`: E ≥ w, so not if w ≥ exp(−least),
// which may be off by a little.
inline bool may_exceed(std::uint32_t word, double exp_of_minus_least) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32 < 1.001 * exp_of_minus_least;
}

inline double gumbel_of_token(std::uint64_t seed, std::uint64_t offset, std::int64_t token) {
  return gumbel(words_of_tokens(seed, offset, token)[static_cast<std::size_t>(token % 4)]);
}

}  // namespace onepass
