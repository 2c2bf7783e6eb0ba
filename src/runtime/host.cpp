#include "runtime/host.hpp"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <atomic>
#include <fstream>

#include "runtime/workers.hpp"

namespace onepass {
namespace {

// "48K" as the kernel writes it; 0 when it says nothing.
std::int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int found = 0;
    std::string type;
    std::int64_t size = 0;
    char unit = 0;
    if (!(std::ifstream(folder + "level") >> found) || found != level) continue;
    std::ifstream(folder + "type") >> type;
    if (type == "Instruction") continue;
    std::ifstream(folder + "size") >> size >> unit;
    return unit == 'M' ? size << 20 : unit == 'K' ? size << 10 : size;
  }
  return 0;
}

std::int64_t or_else(std::int64_t value, std::int64_t fallback) {
  return value > 0 ? value : fallback;
}

// Found once: Highway asks the CPU every time, with instructions that leave a virtual machine,
// which made up 10 µs of every call.
std::atomic<std::int64_t> known_targets{0};  // 0: not known

std::int64_t runnable() {
  std::int64_t targets = known_targets.load(std::memory_order_relaxed);
  if (targets == 0) {
    targets = hwy::SupportedTargets() & HWY_TARGETS;
    known_targets.store(targets, std::memory_order_relaxed);
  }
  return targets;
}

void force_targets(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  known_targets = 0;
}

// Highway numbers better targets lower.
std::int64_t best(std::int64_t targets) { return targets & -targets; }

}  // namespace

Machine host(int threads) {
  static const std::int64_t l1 = or_else(cache_bytes(1), 32 << 10);
  static const std::int64_t l2 = or_else(cache_bytes(2), 512 << 10);
  static const std::int64_t l3 = cache_bytes(3);
  const std::string_view isa = hwy::TargetName(best(runnable()));
  return {"host", isa, threads > 0 ? threads : max_threads(), l1, l2, l3, {}};
}

std::vector<std::string> runnable_isas() {
  std::vector<std::string> names;
  for (std::int64_t rest = runnable(); rest != 0; rest &= rest - 1) {
    names.emplace_back(hwy::TargetName(best(rest)));
  }
  return names;
}

bool force_isa(const std::string& isa) {
  force_targets(0);
  bool found = isa.empty();
  for (std::int64_t rest = runnable(); rest != 0; rest &= rest - 1) {
    if (isa == hwy::TargetName(best(rest))) {
      force_targets(best(rest));
      found = true;
      break;
    }
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());  // or the next call would decide anew
  return found;
}

}  // namespace onepass
