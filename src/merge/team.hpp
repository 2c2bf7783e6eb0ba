// The merge one level above the lanes: across the threads that work on one row.
//
// A Team is one thread's view of its group. TeamMerge does for threads what BlockMerge does for
// warps: each thread contributes partial results and receives the total. It merges partials in the
// order of the row's pieces, whichever thread computed them, so the same plan gives the same bits
// on every run.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace onepass {

// What the threads of a team share.
struct TeamState {
  std::atomic<std::int64_t> cursor{0};  // items taken so far
  std::atomic<int> arrived{0};          // at the current barrier
  std::atomic<int> meetings{0};         // barriers passed
};

class Team {
 public:
  Team(int rank, int size, TeamState& state) : rank_(rank), size_(size), state_(state) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Waits for the whole team by spinning. Barriers stand between microseconds of work, of which a
  // system call, as OpenMP's barrier always makes, would be a large part.
  void barrier() const {
    const int meeting = state_.meetings.load(std::memory_order_acquire);
    if (state_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      state_.arrived.store(0, std::memory_order_relaxed);
      state_.meetings.store(meeting + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; state_.meetings.load(std::memory_order_acquire) == meeting; ++spins) {
      if (spins > 2000) std::this_thread::yield();  // there may be more threads than cores
    }
  }

  // Takes the next `count` items for this thread. The caller checks where the items end.
  std::int64_t take(std::int64_t count) {
    return state_.cursor.fetch_add(count, std::memory_order_relaxed);
  }

 private:
  int rank_, size_;
  TeamState& state_;
};

template <class Partial>
class TeamMerge {
 public:
  // `slots` holds 2 · pieces partials, shared by the team. Rows alternate between the two halves,
  // so that one barrier per row is enough.
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
