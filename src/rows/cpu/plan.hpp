// How CPU variants of row ops run, as pure functions of problem and machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass {

struct CpuLaunch {
  int threads = 1;                // workers in all
  int split = 1;                  // pieces that a row is cut into; 1: each row has one worker
  bool resident = false;          // weights stay in cache: x is read from memory once
  bool streaming = false;         // stores go past the caches
  std::size_t scratch_bytes = 0;  // per worker

  Plan plan() const;
  bool operator==(const CpuLaunch&) const = default;
};

// Threads that the problem keeps busy.
int worthwhile_threads(const Problem& p, const Machine& m, Reasons* reasons);

// What a thread has at a time: whole rows, or pieces where whole rows would leave threads idle.
enum class Cut : std::uint8_t { rows, pieces };
Cut best_cut(const Problem& p, const Machine& m, Reasons* why);

// One thread does it all.
CpuLaunch alone(const Problem& p, const Machine& m, Reasons* reasons);

// Rows over threads.
CpuLaunch rows_over_threads(const Problem& p, const Machine& m, Reasons* reasons);

// The same for rows in tiles, whose weights may stay in cache and whose stores may go past it.
CpuLaunch tiled_rows(const Problem& p, const Machine& m, Reasons* reasons);

// All threads share each row.
CpuLaunch tiled_pieces(const Problem& p, const Machine& m, Reasons* reasons);

}  // namespace onepass
