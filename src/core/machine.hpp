// What the dispatcher knows about a machine: sizes and measured thresholds, as plain data.
#pragma once

#include <cstdint>
#include <string_view>

#include "onepass/context.hpp"

namespace onepass {

class GpuTuning;

// Measured thresholds. dispatch/tuning/ has one table per machine.
struct CpuTuning {
  std::int64_t grain;            // fewest elements that pay for another thread
  std::int64_t split_cols;       // shortest row that pays for a split over threads
  double resident_share;         // share of L2 that a row's kept weights may fill
  double resident_l3_share;      // share of L3 that all threads' kept weights may fill; 0: none
  std::int64_t streaming_bytes;  // least output whose stores bypass the caches; 0: never
  std::int64_t short_cols;       // longest row for cpu_short

  bool operator==(const CpuTuning&) const = default;
};

// The limits of a launch. All 0 if there is no GPU.
struct GpuLimits {
  int sm = 0;                 // compute capability: 90 for 9.0
  int processors = 0;         // SMs
  int block_threads = 0;      // most threads per block
  int processor_threads = 0;  // most threads per SM
  int block_shared = 0;       // most bytes of shared memory per block

  bool operator==(const GpuLimits&) const = default;
};

struct Machine {
  std::string_view name;
  std::string_view isa;     // on a GPU, such as sm_90
  int threads;              // on a CPU
  std::int64_t l1, l2, l3;  // bytes; l1 and l2 per core, l3 shared, 0 if there is none
  CpuTuning tuning;
  GpuLimits gpu{};
  const GpuTuning* tuned = nullptr;  // measurements of such a GPU; null: none

  Device device() const { return gpu.sm > 0 ? Device::cuda : Device::cpu; }
  bool operator==(const Machine&) const = default;
};

}  // namespace onepass
