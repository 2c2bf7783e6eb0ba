#include "rows/cpu/run.hpp"

#include <string>

#include "rows/cpu/layout.hpp"
#include "runtime/workers.hpp"

namespace onepass {

Status run_workers(const RowArgs& args, const CpuLaunch& launch, Worker worker) {
  const auto threads = static_cast<std::size_t>(launch.threads);
  const auto split = static_cast<std::size_t>(launch.split);
  const std::size_t bytes = launch.split == 1 ? threads * launch.scratch_bytes
                                              : split * (2 * kSlotBytes + launch.scratch_bytes);
  std::byte* memory = bytes == 0 ? nullptr : scratch(bytes);
  if (bytes != 0 && memory == nullptr) {
    return {Code::out_of_memory, "no " + std::to_string(bytes) + " bytes of scratch memory"};
  }
  run_team(launch.threads, [&](Team& team) { worker(args, launch, team, memory); });
  return {};
}

}  // namespace onepass
