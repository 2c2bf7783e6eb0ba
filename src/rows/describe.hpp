// Describes a checked call to the dispatcher, and checks the values of its small tensors.
#pragma once

#include "core/problem.hpp"
#include "onepass/status.hpp"
#include "rows/args.hpp"

namespace onepass {

Problem describe(const RowArgs& args);

// Checks tensors with one value per row: lengths, scales, temperatures. On a CPU only, because
// reading GPU memory would wait for the GPU.
Status check_row_values(const RowArgs& args);

}  // namespace onepass
