// attention/gpu_hopper: the tensor cores, the copy engine and the exponentials of a Hopper
// GPU, all at once.
//
// Idea    a warpgroup loads, two or three compute. Each has 64 rows of queries: scores of a tile of
//         keys while the values of the tile before are summed, and exponentials while other
//         warpgroups have the tensor cores, relative to the maximum of a row's first tile. Blocks
//         stay and take tile after tile.
// Versus  gpu_flash: the operands of the products lie in shared memory, and no warp waits for a
//         load or for a product.
// Bytes   q and o once; k and v once a tile of queries, from L2 where a few heads fit there.
// Limits  sm_90a; f16, bf16; dim 64, 96, 128, 192, 256; masks by place, softcap, sinks; lengths and
//         offsets up to dim 192.
// Proof   `onepass verify attention`; numbers: results/h200/attention.json.
//
// The kernel is launch.cuh's; dim_*.cu compile it.

#include "ops/attention/gpu/hopper/variants.hpp"

namespace onepass::ops::attention {

Status gpu_hopper(const AttentionArgs& args, const gpu_attention::HopperLaunch& launch) {
  switch (args.dim) {
    case 64: return gpu_hopper_of<64>(args, launch);
    case 96: return gpu_hopper_of<96>(args, launch);
    case 128: return gpu_hopper_of<128>(args, launch);
    case 192: return gpu_hopper_of<192>(args, launch);
    default: return gpu_hopper_of<256>(args, launch);
  }
}

}  // namespace onepass::ops::attention
