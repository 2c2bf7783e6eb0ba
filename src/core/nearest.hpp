// Suggests the name that a misspelt word probably means.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

// The edit distance of two words: letters to insert, remove or replace, or neighbours to swap
// (Damerau–Levenshtein).
inline std::size_t edits(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before, row(to.size() + 1), next(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const bool same = from[i - 1] == to[j - 1];
      next[j] = std::min({row[j - 1] + (same ? 0 : 1), row[j] + 1, next[j - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (exchanged) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before = row;
    row = next;
  }
  return row[to.size()];
}

// " (did you mean 'softmax'?)", or nothing if no name is near: up to one letter in three may
// differ.
template <class Names>
std::string did_you_mean(std::string_view word, const Names& names) {
  std::string_view nearest;
  std::size_t least = word.size() / 3 + 1;
  for (const std::string_view name : names) {
    const std::size_t distance = edits(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? "" : " (did you mean '" + std::string(nearest) + "'?)";
}

}  // namespace onepass
