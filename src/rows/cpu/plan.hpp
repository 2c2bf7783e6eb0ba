// The launches of the CPU variants of row ops, as pure functions of problem and machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass {

struct CpuLaunch {
  int threads = 1;                // in all
  int split = 1;                  // pieces per row; 1: one thread per row
  bool resident = false;          // weights stay in cache: x is read from memory once
  bool streaming = false;         // stores bypass the caches
  std::size_t scratch_bytes = 0;  // per thread

  Plan plan() const;
  bool operator==(const CpuLaunch&) const = default;
};

// How many threads the problem keeps busy.
int worthwhile_threads(const Problem& p, const Machine& m, Reasons* reasons);

// What a thread has at a time: whole rows, or pieces where whole rows would leave threads idle.
enum class Cut : std::uint8_t { rows, pieces };
Cut best_cut(const Problem& p, const Machine& m, Reasons* why);

// One thread computes all rows.
CpuLaunch alone(const Problem& p, const Machine& m, Reasons* reasons);

// Distributes rows over threads.
CpuLaunch rows_over_threads(const Problem& p, const Machine& m, Reasons* reasons);

// Like rows_over_threads, for rows in tiles, whose weights may stay in cache and whose stores may
// bypass it.
CpuLaunch tiled_rows(const Problem& p, const Machine& m, Reasons* reasons);

// All threads share each row.
CpuLaunch tiled_pieces(const Problem& p, const Machine& m, Reasons* reasons);

}  // namespace onepass
