// The kernels of hopper.cu for dim 256.

#include "ops/attention/gpu/hopper/launch.cuh"

namespace onepass::ops::attention {

template Status gpu_hopper_of<256>(const AttentionArgs&, const gpu_attention::HopperLaunch&);

}  // namespace onepass::ops::attention
