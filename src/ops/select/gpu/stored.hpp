// The types that rows to select from are stored in, and the kernels that have a file for each of
// them. In = void: rows with any options.
#pragma once

#include "onepass/status.hpp"
#include "ops/select/gpu/plan.hpp"
#include "rows/args.hpp"

namespace onepass::ops::select {

template <class In>
Status gpu_sample_block_of(const RowArgs& args, const gpu_select::SelectLaunch& select);

// Calls body(Type<In>) with the stored type of x.
template <class Body>
Status with_stored(const RowArgs& args, Body body) {
  switch (args.logits.x.dtype) {
    case DType::f16: return body(Type<F16>{});
    case DType::bf16: return body(Type<BF16>{});
    default: return body(Type<float>{});
  }
}

}  // namespace onepass::ops::select
