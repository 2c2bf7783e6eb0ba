// Arm with NEON. Measured on a Neoverse-V1 (1 MiB L2), 2 cores, f32.
#pragma once

#include "core/machine.hpp"

namespace onepass::tuning {

inline constexpr CpuTuning kNeon = {
    // 1×16384: 20.1 µs on one thread, 13.0 on two.
    .grain = 8192,
    .split_cols = 16384,
    // 1×128256, 501 KiB of weights: 147 µs; with x read twice and every exp computed twice 229.
    .resident_share = 0.6,
    // The same from L3, 4×1048576 on one thread: 4.6 and 7.4 ms.
    .resident_l3_share = 0.3,
    // This core does not read lines first that it sees being filled: nothing to gain.
    .streaming_bytes = 0,
    // 32768×512: 16.1 ms against cpu_row's 18.4; 131072×32: 5.3 against 10.5.
    .short_cols = 512,
};

}  // namespace onepass::tuning
