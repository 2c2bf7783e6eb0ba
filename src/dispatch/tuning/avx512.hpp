// x86 with AVX-512.
#pragma once

#include "dispatch/machine.hpp"

namespace onepass::tuning {

inline constexpr CpuTuning kAvx512 = {
    .grain = 16384,
    .split_cols = 16384,
    .resident_share = 0.5,
    .resident_l3_share = 0,
    .streaming_bytes = 4 << 20,
    .short_cols = 256,
};

}  // namespace onepass::tuning
