// The K largest of what is offered, in any order of offering but each index once.
//
// A threshold keeps most out: K elements are above it, or as large and have been offered.
// What passes is kept until there is no room, then cut to K, and the threshold rises to
// the last of them.
#pragma once

#include <algorithm>
#include <cstdint>
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

  void restart(std::int64_t k) {
    k_ = static_cast<std::size_t>(k);
    threshold_ = minus_infinity<T>();
    kept_.clear();
  }

  // Elements at or below it need not be offered, if those with lower indices have
  // been. −inf is none.
  T threshold() const { return threshold_; }

  void offer(T z, std::int64_t index) {
    kept_.push_back({z, index});
    if (kept_.size() >= k_ + k_ / 2 + kRoom) cut();
  }

  // K elements are above `bound`, or as large and have been offered.
  void raise(T bound) { threshold_ = std::max(threshold_, bound); }

  // From the largest down.
  const std::vector<Candidate<T>>& sorted() {
    cut();
    std::sort(kept_.begin(), kept_.end());
    return kept_;
  }

 private:
  static constexpr std::size_t kRoom = 24;

  void cut() {
    if (kept_.size() <= k_ || k_ == 0) return;
    const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
    std::nth_element(kept_.begin(), last, kept_.end());
    raise(last->z);
    kept_.resize(k_);
  }

  std::size_t k_;
  T threshold_ = minus_infinity<T>();
  std::vector<Candidate<T>> kept_;
};

// Where fewer than K are above −inf: the others by index.
template <class T>
void fill_up(std::vector<Candidate<T>>& selected, std::int64_t k) {
  if (selected.size() == static_cast<std::size_t>(k)) return;
  std::vector<std::int64_t> taken;
  for (const Candidate<T>& c : selected) taken.push_back(c.index);
  std::sort(taken.begin(), taken.end());
  auto next = taken.begin();
  for (std::int64_t c = 0; selected.size() < static_cast<std::size_t>(k); ++c) {
    if (next != taken.end() && *next == c) {
      ++next;
    } else {
      selected.push_back({minus_infinity<T>(), c});
    }
  }
}

// A lower bound of the k-th largest of some elements: the k-th largest of the maxima of groups, of
// which there are at least k. Groups are interleaved, so that of ascending elements the bound is
// the k-th largest itself.
inline constexpr std::size_t kMostGroups = 4096;

// How many groups, a power of two; 0 where the elements are too few for so many.
constexpr std::size_t groups_of(std::size_t n, std::size_t k) {
  std::size_t groups = 16;
  while (groups < 2 * k) groups *= 2;
  return groups > kMostGroups || n < 2 * groups ? 0 : groups;
}

// Elements of a long row that are looked at for a first bound, in whole tiles: some 64 a candidate,
// or fewer, where that is a small part of the row. 0: none, the first tile's own bound does.
constexpr std::int64_t sample_of(std::int64_t cols, std::int64_t k) {
  std::int64_t sample = 1024;
  while (sample < 64 * k && 16 * sample <= cols) sample *= 2;
  return k > 32 && sample >= 8 * k && 8 * sample <= cols ? sample : 0;
}

}  // namespace onepass
