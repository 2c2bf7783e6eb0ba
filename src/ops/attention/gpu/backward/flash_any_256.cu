// The general kernels of flash.cu for dims up to 256.

#include "ops/attention/gpu/backward/flash.cuh"

namespace onepass::ops::attention {

template Status gpu_backward_flash_any_of<256>(const AttentionBackwardArgs&,
                                               const gpu_attention::BackwardFlashLaunch&);

}  // namespace onepass::ops::attention
