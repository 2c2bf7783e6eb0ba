// What a case of attention says of its sequences, and what follows from that.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/problem/case.hpp"

namespace onepass::cli {

// The sequences of a batch. Drawn from the case's seed alone, so that whoever asks gets the same.
struct Sequences {
  std::vector<std::int64_t> queries, keys;  // that there are
  std::vector<std::int64_t> lengths;        // keys that take part

  std::int64_t all_queries() const;
  std::int64_t all_keys() const;
};

Sequences sequences_of(const Case& c);

// 1 / √dim.
double usual_scale(const Case& c);

// Sets what was left out, and says what cannot be.
Status complete_attention(bool has_scale, Case& c);

// Pairs of a query and a key that no length, causal or window mask hides, times heads.
double live_pairs(const Case& c);

}  // namespace onepass::cli
