// The kernels of 10_mma and 11_decode for dims up to 512.

#include "ops/attention/flash_launch.cuh"

namespace onepass::ops::attention {

template Status flash_mma_of<512>(const AttentionArgs&, const Plan&);
template Status gpu_decode_of<512>(const AttentionArgs&, const Plan&);

}  // namespace onepass::ops::attention
