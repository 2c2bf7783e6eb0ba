// The reference of attention: one query, float64, written to be obviously right.
#pragma once

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

struct Attended {
  Row o;
  double lse;
  Row z;     // of each key
  Row size;  // Σ |q·k| · |scale| of each key: what its rounding is relative to
};

// k and v hold keys × q.size() elements. A sink is one more logit, without a value.
Attended attention(const Row& q, std::span<const double> k, std::span<const double> v,
                   const Scores& scores, std::optional<double> sink);

}  // namespace oracle
