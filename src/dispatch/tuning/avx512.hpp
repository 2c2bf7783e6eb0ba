// x86 with AVX-512. Measured on an Emerald Rapids Xeon (2 MiB L2), 2 cores.
#pragma once

#include "core/machine.hpp"

namespace onepass::tuning {

inline constexpr CpuTuning kAvx512 = {
    // 1×50257 f32: 37 µs on one thread, 24 on two.
    .grain = 16384,
    .split_cols = 16384,
    // Half of L2 leaves room for the row that is fetched meanwhile.
    .resident_share = 0.5,
    // exp costs less here than a trip to L3: 4×1048576 f32 is read twice.
    .resident_l3_share = 0,
    // f32 on one thread, through the caches and past them: 2048×50257 102 and 63 ms,
    // 4×1048576 4.7 and 3.6 ms. Below twice the L2 a reader would miss what went past it.
    .streaming_bytes = 4 << 20,
    // 32768×128 f32 on one thread: 3.2 ms against cpu_row's 4.4.
    .short_cols = 256,
};

}  // namespace onepass::tuning
