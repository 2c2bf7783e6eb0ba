// The kernels of hopper.cu for dims up to 64.

#include "ops/attention/gpu/backward/hopper/launch.cuh"

namespace onepass::ops::attention {

template Status gpu_backward_hopper_of<64>(const AttentionBackwardArgs&,
                                           const gpu_attention::BackwardHopperLaunch&);

}  // namespace onepass::ops::attention
