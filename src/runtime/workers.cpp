#include "runtime/workers.hpp"

#include <omp.h>
#include <pthread.h>

#include <memory>
#include <new>
#include <system_error>
#include <thread>

namespace onepass {
namespace {

// libgomp keeps a pool of workers for each thread that starts teams. Only the forking thread
// survives a fork: its pool is still listed in the child, and the next team would wait for
// workers that are gone.
thread_local bool came_through_fork = false;
[[maybe_unused]] const int watching_forks =
    pthread_atfork(nullptr, nullptr, [] { came_through_fork = true; });

void run_on_pool(int threads, TeamState& state, const std::function<void(Team&)>& body) {
#pragma omp parallel num_threads(threads)
  {
    Team team(omp_get_thread_num(), omp_get_num_threads(), state);
    body(team);
  }
}

void run_alone(TeamState& state, const std::function<void(Team&)>& body) {
  Team team(0, 1, state);
  body(team);
}

}  // namespace

int max_threads() { return omp_get_max_threads(); }

void set_max_threads(int threads) { omp_set_num_threads(threads); }

void run_team(int threads, const std::function<void(Team&)>& body) {
  TeamState state;
  if (threads <= 1) return run_alone(state, body);
  if (!came_through_fork) return run_on_pool(threads, state, body);
  // A new thread has no pool yet and gets one of its own, for some 50 µs a team.
  std::thread leader;
  try {
    leader = std::thread([&] { run_on_pool(threads, state, body); });
  } catch (const std::system_error&) {  // no more threads to be had
    return run_alone(state, body);
  }
  leader.join();
}

std::byte* scratch(std::size_t bytes) {
  constexpr std::align_val_t line{64};
  const auto release = [](std::byte* p) { ::operator delete(p, line); };
  thread_local std::unique_ptr<std::byte, decltype(release)> kept(nullptr, release);
  thread_local std::size_t size = 0;
  if (bytes > size) {
    kept.reset();
    size = 0;
    kept.reset(static_cast<std::byte*>(::operator new(bytes, line, std::nothrow)));
    if (kept != nullptr) size = bytes;
  }
  return kept.get();
}

}  // namespace onepass
