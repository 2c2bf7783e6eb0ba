// What the copy engine of a GPU has to know of a tensor (sm_90).
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"

namespace onepass {

// A tensor of 16-bit elements, batch × heads × tokens × dim, from which tiles of so many tokens and
// columns of 16 bits are copied, their rows of 128 bytes swizzled.
Status make_tensor_map(const Heads& tensor, const std::array<std::int64_t, 4>& shape, int tokens,
                       int columns, CUtensorMap& out);

}  // namespace onepass
