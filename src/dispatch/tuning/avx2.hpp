// x86 with AVX2, or less. Derived from the AVX-512 table, not measured.
#pragma once

#include "core/machine.hpp"

namespace onepass::tuning {

inline constexpr CpuTuning kAvx2 = {
    .grain = 16384,
    .split_cols = 16384,
    .resident_share = 0.5,
    .resident_l3_share = 0,
    .streaming_bytes = 4 << 20,
    .short_cols = 256,
};

}  // namespace onepass::tuning
