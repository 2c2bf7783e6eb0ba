// The K largest of what is offered, in any order of offering but each index once.
//
// A threshold keeps most out: K elements that are at least as large have been offered. What passes is kept
// until there is no room, then cut to K, and the threshold rises to the last of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/state.hpp"

namespace onepass {

template <class T>
struct Candidate {
  T z;
  std::int64_t index;

  // The order of results: of equal elements the lower index first.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.z > b.z || (a.z == b.z && a.index < b.index);
  }
};

template <class T>
class Best {
 public:
  explicit Best(std::int64_t k) : k_(static_cast<std::size_t>(k)) {}

  // Elements at or below it need not be offered, if those with lower indices have been. −inf is none.
  T threshold() const { return threshold_; }

  void offer(T z, std::int64_t index) {
    kept_.push_back({z, index});
    if (kept_.size() >= 2 * k_ + kRoom) cut();
  }

  // From the largest down.
  const std::vector<Candidate<T>>& sorted() {
    cut();
    std::sort(kept_.begin(), kept_.end());
    return kept_;
  }

 private:
  static constexpr std::size_t kRoom = 64;

  void cut() {
    if (kept_.size() <= k_ || k_ == 0) return;
    const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
    std::nth_element(kept_.begin(), last, kept_.end());
    threshold_ = last->z;
    kept_.resize(k_);
  }

  std::size_t k_;
  T threshold_ = minus_infinity<T>();
  std::vector<Candidate<T>> kept_;
};

// A lower bound of the k-th largest of a tile: the k-th largest of the maxima of groups, of which there are at
// least k. Groups are interleaved, so that in an ascending tile the bound is the k-th largest itself. −inf where
// the tile is too short for so many groups.
template <class T>
T kth_largest_bound(const T* z, std::size_t n, std::size_t k) {
  std::size_t groups = 16;
  while (groups < 2 * k) groups *= 2;
  constexpr std::size_t kMost = 512;
  if (groups > kMost || n < 2 * groups) return minus_infinity<T>();
  T largest[kMost];
  for (std::size_t g = 0; g < groups; ++g)
    largest[g] = std::max(minus_infinity<T>(), z[g]);  // no NaN
  for (std::size_t i = groups; i + groups <= n; i += groups) {
    for (std::size_t g = 0; g < groups; ++g) largest[g] = std::max(largest[g], z[i + g]);
  }
  std::nth_element(largest, largest + (k - 1), largest + groups, std::greater<T>());
  return largest[k - 1];
}

}  // namespace onepass
