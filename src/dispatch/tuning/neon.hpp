// Arm with NEON. Measured on a Neoverse-V1, 2 cores, f32.
#pragma once

#include "dispatch/machine.hpp"

namespace onepass::tuning {

inline constexpr CpuTuning kNeon = {
    // 1×16384: 19.4 µs on one thread, 11.9 on two; 1×8192: 10.8 and 8.
    .grain = 8192,
    // The same: two threads meet in about 2 µs.
    .split_cols = 16384,
    // 1×128256, 501 KiB of weights in 1 MiB of L2: 6 % faster than reading x twice.
    .resident_share = 0.6,
    .resident_l3_share = 0.3,
    // Stores that fill whole lines are not read first by this core, with or without a hint.
    .streaming_bytes = 0,
    // 131072×32: 5.3 ms against cpu_row's 10.5.
    .short_cols = 512,
};

}  // namespace onepass::tuning
