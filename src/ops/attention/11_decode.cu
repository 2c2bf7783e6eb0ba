// attention/11_decode: a few queries against many keys.
//
// Idea    the rows of a kv head, all heads that share it together, fit into one tile of 16, so that a warp is enough
//         for them. What the memory wants is many of these, each with its own keys on their way: the warps of a block
//         take tiles of keys in turn and join what they found in shared memory. Where blocks are fewer than SMs, keys
//         are cut into parts that a second launch joins.
// Versus  10_mma: the same kernel with one warp a team, which is what the memory wants when there is little to compute.
// Bytes   k and v once; the parts' sums once more.
// Limits  as 10_mma; up to 16 rows a kv head.
// Proof   `onepass verify attention`; numbers: results/h200/attention.json.

#include "ops/attention/flash.cuh"
#include "ops/attention/variants.hpp"

namespace onepass::ops::attention {
namespace {

template <class Stored>
Status launch_dim(const AttentionArgs& a, const Plan& plan) {
  if (a.dim <= 64) return launch_flash<Stored, Shape<64, 64, 1, 1>>(a, plan);
  if (a.dim <= 96) return launch_flash<Stored, Shape<96, 96, 1, 1>>(a, plan);
  if (a.dim <= 128) return launch_flash<Stored, Shape<128, 128, 1, 1>>(a, plan);
  if (a.dim <= 192) return launch_flash<Stored, Shape<192, 192, 1, 1>>(a, plan);
  if (a.dim <= 256) return launch_flash<Stored, Shape<256, 256, 1, 1>>(a, plan);
  return launch_flash<Stored, Shape<512, 256, 1, 1>>(a, plan);
}

}  // namespace

Status gpu_decode(const AttentionArgs& args, const Plan& plan) {
  return args.q.dtype == DType::bf16 ? launch_dim<BF16>(args, plan) : launch_dim<F16>(args, plan);
}

}  // namespace onepass::ops::attention
