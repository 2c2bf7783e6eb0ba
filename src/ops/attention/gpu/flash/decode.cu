// attention/gpu_decode: a few queries against many keys.
//
// Idea    the rows of a kv head, all heads that share it together, fit into one tile of 16, so
//         that a warp is enough for them. What the memory wants is many of these, each with its
//         own keys on their way: the warps of a block take tiles of keys in turn and join what
//         they found in shared memory. Where blocks are fewer than SMs, keys are cut into parts
//         that a second launch joins.
// Versus  gpu_flash: the same kernel with one warp per team, which is what the memory wants when
//         there is little to compute.
// Bytes   k and v once; the parts' sums once more.
// Limits  as gpu_flash; up to 16 rows per kv head.
// Proof   `onepass verify attention`; numbers: results/h200/attention.json.
//
// The kernel is mainloop.cuh's; dim_*.cu compile it.

#include "ops/attention/gpu/flash/variants.hpp"

namespace onepass::ops::attention {

Status gpu_decode(const AttentionArgs& args, const gpu_attention::FlashLaunch& launch) {
  return with_dim(args.dim, [&]<int Dim>() { return gpu_decode_of<Dim>(args, launch); });
}

}  // namespace onepass::ops::attention
