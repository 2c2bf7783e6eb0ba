// Arm with NEON.
#pragma once

#include "dispatch/machine.hpp"

namespace onepass::tuning {

inline constexpr CpuTuning kNeon = {
    .grain = 16384,
    .split_cols = 16384,
    .resident_share = 0.5,
    .streaming_bytes = 0,
    .short_cols = 256,
};

}  // namespace onepass::tuning
