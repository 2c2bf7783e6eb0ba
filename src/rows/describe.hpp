// What the dispatcher has to know of a checked call, and what the values of its small
// tensors must be.
#pragma once

#include "core/problem.hpp"
#include "onepass/status.hpp"
#include "rows/args.hpp"

namespace onepass {

Problem describe(const RowArgs& args);

// Tensors with a value per row: lengths, scales, temperatures. On a CPU only: a GPU's memory cannot
// be looked at without waiting for it.
Status check_row_values(const RowArgs& args);

}  // namespace onepass
