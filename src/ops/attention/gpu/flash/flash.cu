// attention/gpu_flash: flash attention by the tensor cores of one warp at a time.
//
// Idea    a block has 64 or 128 rows in shared memory and registers, and walks over tiles of 64 or
//         128 keys. While the scores of a tile are computed its values come, and while these are
//         summed the next keys do: two blocks per SM hide what is left. Where tiles of rows are
//         few, blocks of a cluster (sm_90) share the keys of each.
// Versus  03_flash_wmma: operands by ldmatrix from swizzled rows and never twice, copies that
//         no warp waits for, the scores stay in registers.
// Bytes   q and o once; k and v once per tile of rows.
// Limits  sm_80; f16, bf16; every option, any dim, any stride.
// Proof   `onepass verify attention`; numbers: results/h200/attention_mma.json.
//
// The kernel is mainloop.cuh's; dim_*.cu compile it.

#include "ops/attention/gpu/flash/variants.hpp"

namespace onepass::ops::attention {

Status gpu_flash(const AttentionArgs& args, const gpu_attention::FlashLaunch& launch) {
  return with_dim(args.dim, [&]<int Dim>() { return gpu_flash_of<Dim>(args, launch); });
}

}  // namespace onepass::ops::attention
