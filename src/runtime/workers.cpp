#include "runtime/workers.hpp"

#include <omp.h>

#include <memory>
#include <new>

namespace onepass {

int max_threads() { return omp_get_max_threads(); }

void set_max_threads(int threads) { omp_set_num_threads(threads); }

void run_team(int threads, const std::function<void(Team&)>& body) {
  TeamState state;
  if (threads <= 1) {
    Team team(0, 1, state);
    body(team);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    Team team(omp_get_thread_num(), omp_get_num_threads(), state);
    body(team);
  }
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
