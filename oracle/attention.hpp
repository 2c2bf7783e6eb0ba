// The reference of attention: one query, float64, written to be obviously right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "oracle/oracle.hpp"

namespace oracle {

// What a query's scores become, where it is kept; −inf where not:
// z = softcap(q·k · scale) − slope · |key − own| + additive.
struct Scores {
  double scale = 1;
  double softcap = 0;
  double slope = 0;
  std::int64_t own = 0;  // the key that the query stands at
  Row additive;          // empty: none
  Keep keep;             // empty: all
};

// The keys of a query, scored; those that are not kept have z = −inf and 0.
struct ScoredKeys {
  Row z;
  Row scaled;  // q·k · scale
  Row size;    // Σ |q·k| · |scale|: what its rounding is relative to
};

ScoredKeys score(const Row& q, std::span<const double> k, const Scores& scores);

struct Attended {
  Row o;
  double lse;
  Row z, size;  // of ScoredKeys
};

// k holds keys × q.size() elements, v keys × dim_v; 0: as k. A sink is one more logit, without a
// value.
Attended attention(const Row& q, std::span<const double> k, std::span<const double> v,
                   const Scores& scores, std::optional<double> sink, std::size_t dim_v = 0);

}  // namespace oracle
