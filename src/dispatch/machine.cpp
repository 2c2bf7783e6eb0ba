#include "dispatch/machine.hpp"

#include "dispatch/tuning/avx2.hpp"
#include "dispatch/tuning/avx512.hpp"
#include "dispatch/tuning/neon.hpp"

namespace onepass {
namespace {

constexpr Machine kMachines[] = {
    {"sapphire-rapids-2", "AVX3", 2, 48 << 10, 2 << 20, 105 << 20, tuning::kAvx512},
    {"sapphire-rapids-16", "AVX3", 16, 48 << 10, 2 << 20, 105 << 20, tuning::kAvx512},
    {"avx2-8", "AVX2", 8, 32 << 10, 512 << 10, 16 << 20, tuning::kAvx2},
    {"neoverse-v1-2", "NEON", 2, 64 << 10, 1 << 20, 32 << 20, tuning::kNeon},
};

}  // namespace

std::span<const Machine> known_machines() { return kMachines; }

const Machine* find_machine(std::string_view name) {
  for (const Machine& m : kMachines) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

const CpuTuning& tuning_for(std::string_view isa) {
  if (isa.starts_with("AVX3")) return tuning::kAvx512;
  if (isa == "NEON") return tuning::kNeon;
  return tuning::kAvx2;
}

}  // namespace onepass
