// Threads and scratch memory: the impure half of the CPU backend.
#pragma once

#include <cstddef>
#include <functional>

#include "merge/team.hpp"

namespace onepass {

int max_threads();
void set_max_threads(int threads);

// Runs body once on each of `threads` threads (fewer where the system gives fewer).
void run_team(int threads, const std::function<void(Team&)>& body);

// Memory that the calling thread keeps for its next call; null when there is none to be had.
// Aligned to a cache line. The contents are anything.
std::byte* scratch(std::size_t bytes);

}  // namespace onepass
