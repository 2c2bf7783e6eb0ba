// What a call of attention must give, and how far from it a result may lie.
#pragma once

#include <span>

#include "cli/ops/expect.hpp"

namespace onepass::cli {

// Rows are queries in the order of the case's shape: batch, head, query.
void expect_attention(const Call& call, std::span<const std::int64_t> rows, const Sink& sink);

}  // namespace onepass::cli
