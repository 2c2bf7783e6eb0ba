// The kernels of prefill.cu and decode.cu for dims up to 64.

#include "ops/attention/gpu/flash/launch.cuh"

namespace onepass::ops::attention {

template Status flash_mma_of<64>(const AttentionArgs&, const attention_launch::FlashLaunch&);
template Status gpu_decode_of<64>(const AttentionArgs&, const attention_launch::FlashLaunch&);

}  // namespace onepass::ops::attention
