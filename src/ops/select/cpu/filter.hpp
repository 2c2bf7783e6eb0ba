// Which tokens of a sorted list the filters leave: a prefix of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/select/cpu/best.hpp"

namespace onepass {

struct Filters {
  std::int64_t top_k = 0;  // 0: none
  double top_p = 1;
  double min_p = 0;

  bool none() const { return top_k == 0 && top_p >= 1 && min_p <= 0; }
};

// How many of the largest tokens are left; −1: more than the list has. `m` and `d`
// are the row's state, `whole` says that the list has every token that could be left.
template <class T>
std::int64_t left_by(const Filters& filters, const std::vector<Candidate<T>>& sorted, State<T> row,
                     bool whole) {
  const auto weight = [&](const Candidate<T>& c) {
    return std::exp(static_cast<double>(c.z) - static_cast<double>(row.m));
  };
  const bool by_k = filters.top_k > 0 && static_cast<std::int64_t>(sorted.size()) >= filters.top_k;
  const auto count = by_k ? static_cast<std::size_t>(filters.top_k) : sorted.size();
  double total = static_cast<double>(row.d);
  if (filters.top_k > 0) {
    total = 0;
    for (std::size_t i = 0; i < count; ++i) total += weight(sorted[i]);
  }
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double w = weight(sorted[i]);
    if (i > 0 && w < filters.min_p) return static_cast<std::int64_t>(i);
    sum += w;
    if (filters.top_p < 1 && sum >= filters.top_p * total) return static_cast<std::int64_t>(i) + 1;
  }
  return by_k || whole ? static_cast<std::int64_t>(count) : -1;
}

}  // namespace onepass
