#include "rows/cpu/run.hpp"

#include <string>

#include "rows/cpu/layout.hpp"
#include "runtime/workers.hpp"

namespace onepass {

Status run_workers(const RowArgs& args, const Plan& plan, Worker worker) {
  const auto threads = static_cast<std::size_t>(plan.threads);
  const auto split = static_cast<std::size_t>(plan.split);
  const std::size_t bytes = plan.split == 1 ? threads * plan.scratch_bytes
                                            : split * (2 * kSlotBytes + plan.scratch_bytes);
  std::byte* memory = bytes == 0 ? nullptr : scratch(bytes);
  if (bytes != 0 && memory == nullptr) {
    return {Code::out_of_memory, "no " + std::to_string(bytes) + " bytes of scratch memory"};
  }
  run_team(plan.threads, [&](Team& team) { worker(args, plan, team, memory); });
  return {};
}

}  // namespace onepass
