// The merge one level above the lanes: across the threads that work on one row.
//
// A Team is one thread's view of the group it works in. TeamMerge is to threads what a block's
// merge is to warps: each brings a partial result and leaves with the whole. Partials
// are merged in the order of the pieces of the row, whichever thread computed them, so that the
// same plan gives the same bits in every run.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace onepass {

// What a team has in common.
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

  // Waits for the whole team. By spinning: the meeting is in the middle of microseconds of work,
  // and a system call, which OpenMP's barrier always makes, would be a good part of it.
  void barrier() const {
    const int meeting = state_.meetings.load(std::memory_order_acquire);
    if (state_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      state_.arrived.store(0, std::memory_order_relaxed);
      state_.meetings.store(meeting + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; state_.meetings.load(std::memory_order_acquire) == meeting; ++spins) {
      if (spins > 2000) std::this_thread::yield();  // more threads than cores: let them run
    }
  }

  // The next `count` items that no thread has taken yet; what is past the end is up to the caller.
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
