// The kernels of 20_hopper for dim 256.

#include "ops/attention/hopper_launch.cuh"

namespace onepass::ops::attention {

template Status gpu_hopper_of<256>(const AttentionArgs&, const Plan&);

}  // namespace onepass::ops::attention
