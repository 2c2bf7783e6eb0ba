#include "dispatch/machines.hpp"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "dispatch/tuning/avx2.hpp"
#include "dispatch/tuning/avx512.hpp"
#include "dispatch/tuning/neon.hpp"
#include "dispatch/tuning_file.hpp"
#include "onepass/context.hpp"
#include "rows/gpu/tuning.hpp"
#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass {
namespace {

constexpr Machine kMachines[] = {
    {"sapphire-rapids-2", "AVX3", 2, 48 << 10, 2 << 20, 105 << 20, tuning::kAvx512},
    {"sapphire-rapids-16", "AVX3", 16, 48 << 10, 2 << 20, 105 << 20, tuning::kAvx512},
    {"avx2-8", "AVX2", 8, 32 << 10, 512 << 10, 16 << 20, tuning::kAvx2},
    {"neoverse-v1-2", "NEON", 2, 64 << 10, 1 << 20, 32 << 20, tuning::kNeon},
};

// l1 is what an SM has of it, l2 the whole chip's.
constexpr Machine kGpus[] = {
    {"h200", "sm_90", 0, 256 << 10, 60 << 20, 0, {}, {90, 132, 1024, 2048, 227 << 10}},
    {"a100", "sm_80", 0, 192 << 10, 40 << 20, 0, {}, {80, 108, 1024, 2048, 163 << 10}},
    {"rtx-4090", "sm_89", 0, 128 << 10, 72 << 20, 0, {}, {89, 128, 1024, 1536, 99 << 10}},
};

// What is used on a kind of GPU: the user's own table, or else the library's.
struct Tuned {
  GpuTuning users;
  Status users_status;  // why the user's own is not used
  const GpuTuning* table = nullptr;
};

// Read once per kind.
const Tuned& tuned_for(const Machine& gpu) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, Tuned> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({gpu.gpu.sm, gpu.gpu.processors});
  Tuned& tuned = entry->second;
  if (is_new) {
    bool found = false;
    tuned.users_status = user_tuning(gpu, tuned.users, found);
    tuned.table = found ? &tuned.users : built_in_tuning(gpu);
  }
  return tuned;
}

}  // namespace

Machine this_host(int threads) {
  Machine machine = host(threads);
  machine.tuning = tuning_for(machine.isa);
  return machine;
}

Status this_gpu(Machine& out) {
  if (Status status = gpu::machine(out); !status.ok()) return status;
  out.tuned = tuned_for(out).table;
  return {};
}

Status tuning_status() {
  Machine machine{};
  if (!gpu::machine(machine).ok()) return {};  // no GPU, no table
  return tuned_for(machine).users_status;
}

std::span<const Machine> known_machines() { return kMachines; }

std::span<const Machine> known_gpus() {
  static const auto gpus = [] {
    auto list = std::to_array(kGpus);
    for (Machine& m : list) m.tuned = built_in_tuning(m);
    return list;
  }();
  return gpus;
}

const Machine* find_machine(std::string_view name) {
  for (const std::span<const Machine> list : {known_machines(), known_gpus()}) {
    for (const Machine& m : list) {
      if (m.name == name) return &m;
    }
  }
  return nullptr;
}

const CpuTuning& tuning_for(std::string_view isa) {
  if (isa.starts_with("AVX3")) return tuning::kAvx512;
  if (isa == "NEON") return tuning::kNeon;
  return tuning::kAvx2;
}

}  // namespace onepass
