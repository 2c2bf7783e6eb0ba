// What the dispatcher knows of a machine: sizes and measured thresholds, plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace onepass {

// Thresholds that only a measurement can set. One table a machine: dispatch/tuning/.
struct CpuTuning {
  std::int64_t grain;            // fewest elements worth another thread
  std::int64_t split_cols;       // shortest row worth cutting
  double resident_share;         // of L2 that a row's kept weights may fill
  double resident_l3_share;      // of L3 that the kept weights of all threads may fill; 0: none
  std::int64_t streaming_bytes;  // output from which stores go past the caches; 0: never
  std::int64_t short_cols;       // longest row for cpu_short
};

struct Machine {
  std::string_view name;
  std::string_view isa;
  int threads;
  std::int64_t l1, l2, l3;  // bytes; l1 and l2 a core, l3 shared, 0 where there is none
  CpuTuning tuning;
};

// The machines of the tuning tables. `explain` plans for any of them without having one.
std::span<const Machine> known_machines();
const Machine* find_machine(std::string_view name);

// The tuning for an instruction set, by Highway's name of it.
const CpuTuning& tuning_for(std::string_view isa);

}  // namespace onepass
