// attention/gpu_flash of the backward: tiles by the tensor cores of one warp at a time.
//
// Idea    a tile of keys owns its dk and dv, a tile of rows its dq, and each goes through the other
//         operand's tiles. The weights come again from the lse.
// Versus  gpu_simt: products of tiles, in 16 bits with sums in float32.
// Bytes   every tile of keys reads the rows that see it, every tile of rows the keys it sees; most
//         of that from L2.
// Limits  sm_80; f16, bf16; dims to 256; causal, windows, lengths, offsets, groups; no softcap,
//         ALiBi or mask in memory.
// Proof   `onepass verify attention_backward`; numbers: results/h200/attention_backward.json.
//
// The kernels are flash.cuh's; flash_*.cu compile them, so that cores share the work.

#include "core/try.hpp"
#include "ops/attention/gpu/backward/flash_of.hpp"
#include "ops/attention/gpu/backward/variants.hpp"

namespace onepass::ops::attention {

Status gpu_backward_flash(const AttentionBackwardArgs& a,
                          const gpu_attention::BackwardFlashLaunch& planned) {
  ONEPASS_TRY(prepare_backward(a, "gpu_flash"));
  ONEPASS_TRY(planned.dim == 64    ? gpu_backward_flash_of<64>(a, planned)
              : planned.dim == 128 ? gpu_backward_flash_of<128>(a, planned)
                                   : gpu_backward_flash_of<256>(a, planned));
  return finish_backward(a, "gpu_flash");
}

}  // namespace onepass::ops::attention
