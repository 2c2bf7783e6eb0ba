// The merge one level above the lanes: across the threads that work on one row.
//
// A Team is one thread's view of the group it works in. TeamMerge is to threads what a block's
// merge is to warps: everybody brings a partial result, everybody leaves with the whole. Partials
// are merged in the order of the pieces of the row, whoever computed them, so that the same plan
// gives the same bits in every run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace onepass {

class Team {
 public:
  Team(int rank, int size, std::atomic<std::int64_t>& cursor, void (*meet)())
      : rank_(rank), size_(size), cursor_(cursor), barrier_(meet) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() const { barrier_(); }

  // The next `count` items nobody has taken yet; what is past the end is up to the caller.
  std::int64_t take(std::int64_t count) {
    return cursor_.fetch_add(count, std::memory_order_relaxed);
  }

 private:
  int rank_, size_;
  std::atomic<std::int64_t>& cursor_;
  void (*barrier_)();
};

template <class Partial>
class TeamMerge {
 public:
  // slots holds 2 · pieces partials, shared by the team: rows alternate between the two halves,
  // so that one barrier a row is enough.
  TeamMerge(Team& team, Partial* slots, int pieces) : team_(team), slots_(slots), pieces_(pieces) {}

  void put(int piece, const Partial& mine) { half()[piece] = mine; }

  Partial all() {
    team_.barrier();
    Partial total = half()[0];
    for (int i = 1; i < pieces_; ++i) total = merge(total, half()[i]);
    odd_ = !odd_;
    return total;
  }

 private:
  Partial* half() const { return slots_ + (odd_ ? pieces_ : 0); }

  Team& team_;
  Partial* slots_;
  int pieces_;
  bool odd_ = false;
};

}  // namespace onepass
