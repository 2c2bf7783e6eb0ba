// sample/gpu_block: a token of each row, in one read of its logits.
//
// Idea    without a filter, all tokens race in the read itself. With one, the candidates come as
//         topk's do, the filters leave the first of them, and these race. A row finds all of its
//         options on the device.
// Versus  gpu_block: what becomes of the keys.
// Bytes   x once. Where the filters leave more than the candidates, one block of the row reads it
//         once more for a race of those that are left, and twice before that to find out who these
//         are by top_p, or by a top_k of thousands; five times for both. Without a filter, once
//         more where the largest logit is far from the first ones.
// Limits  f32, f16, bf16; every option.
// Proof   `onepass verify`, tests/ops/select/sample_gpu_test.cpp; numbers: results/h200/topk.json.
//
// The kernel is sample_block.cuh's; sample_block_*.cu compile it, so that cores share the work.

#include "ops/select/gpu/stored.hpp"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {

Status gpu_sample_block(const RowArgs& args, const gpu_select::SelectLaunch& select) {
  if (select.general) return gpu_sample_block_of<void>(args, select);
  return with_stored(args,
                     [&]<class In>(Type<In>) { return gpu_sample_block_of<In>(args, select); });
}

}  // namespace onepass::ops::select
