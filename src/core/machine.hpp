// What the dispatcher knows of a machine: sizes and measured thresholds, plain data.
#pragma once

#include <cstdint>
#include <string_view>

#include "onepass/context.hpp"

namespace onepass {

class GpuTuning;

// Thresholds that only a measurement can set. One table a machine: dispatch/tuning/.
struct CpuTuning {
  std::int64_t grain;            // fewest elements worth another thread
  std::int64_t split_cols;       // shortest row worth cutting
  double resident_share;         // of L2 that a row's kept weights may fill
  double resident_l3_share;      // of L3 that the kept weights of all threads may fill; 0: none
  std::int64_t streaming_bytes;  // output from which stores go past the caches; 0: never
  std::int64_t short_cols;       // longest row for cpu_short

  bool operator==(const CpuTuning&) const = default;
};

// What a launch must fit into. All 0 where there is no GPU.
struct GpuLimits {
  int sm = 0;                 // compute capability: 90 for 9.0
  int processors = 0;         // SMs
  int block_threads = 0;      // most threads a block
  int processor_threads = 0;  // and an SM
  int block_shared = 0;       // most bytes of shared memory a block may ask for

  bool operator==(const GpuLimits&) const = default;
};

struct Machine {
  std::string_view name;
  std::string_view isa;     // of a GPU: sm_90
  int threads;              // of a CPU
  std::int64_t l1, l2, l3;  // bytes; l1 and l2 a core, l3 shared, 0 where there is none
  CpuTuning tuning;
  GpuLimits gpu{};
  const GpuTuning* tuned = nullptr;  // what was measured on such a GPU; null: nothing

  Device device() const { return gpu.sm > 0 ? Device::cuda : Device::cpu; }
  bool operator==(const Machine&) const = default;
};

}  // namespace onepass
