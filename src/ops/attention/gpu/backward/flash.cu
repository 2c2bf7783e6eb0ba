// attention/gpu_flash of the backward: tiles by the tensor cores of one warp at a time.
//
// Idea    a tile of keys owns its dk and dv, a tile of rows its dq, and each goes through the other
//         operand's tiles. The weights come again from the lse.
// Versus  gpu_simt: products of tiles, in 16 bits with sums in float32.
// Bytes   every tile of keys reads the rows that see it, every tile of rows the keys it sees; most
//         of that from L2.
// Limits  sm_80; f16, bf16; every option. Softcap, ALiBi, masks in memory and dims above 256 have
//         kernels of their own, of which one serves both dtypes: what they ask of each score the
//         others are compiled without. Dims above 256 need 161 KB of shared memory.
// Proof   `onepass verify attention_backward`; numbers: results/h200/attention_backward.json.
//
// The kernels are flash.cuh's; flash_*.cu compile them, so that cores share the work: those with
// every option in flash_any_*.cu.

#include "core/try.hpp"
#include "ops/attention/gpu/backward/flash_of.hpp"
#include "ops/attention/gpu/backward/variants.hpp"

namespace onepass::ops::attention {
namespace {

Status launch_usual(const AttentionBackwardArgs& a,
                    const gpu_attention::BackwardFlashLaunch& planned) {
  return planned.dim == 64    ? gpu_backward_flash_of<64>(a, planned)
         : planned.dim == 128 ? gpu_backward_flash_of<128>(a, planned)
                              : gpu_backward_flash_of<256>(a, planned);
}

Status launch_general(const AttentionBackwardArgs& a,
                      const gpu_attention::BackwardFlashLaunch& planned) {
  return planned.dim == 64    ? gpu_backward_flash_any_of<64>(a, planned)
         : planned.dim == 128 ? gpu_backward_flash_any_of<128>(a, planned)
         : planned.dim == 256 ? gpu_backward_flash_any_of<256>(a, planned)
                              : gpu_backward_flash_any_of<512>(a, planned);
}

}  // namespace

Status gpu_backward_flash(const AttentionBackwardArgs& a,
                          const gpu_attention::BackwardFlashLaunch& planned) {
  ONEPASS_TRY(prepare_backward(a, "gpu_flash"));
  ONEPASS_TRY(planned.general ? launch_general(a, planned) : launch_usual(a, planned));
  return finish_backward(a, "gpu_flash");
}

}  // namespace onepass::ops::attention
