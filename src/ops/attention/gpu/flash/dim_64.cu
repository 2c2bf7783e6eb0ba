// The kernels of flash.cu and decode.cu for dims up to 64.

#include "ops/attention/gpu/flash/launch.cuh"

namespace onepass::ops::attention {

template Status gpu_flash_of<64>(const AttentionArgs&, const gpu_attention::FlashLaunch&);
template Status gpu_decode_of<64>(const AttentionArgs&, const gpu_attention::FlashLaunch&);

}  // namespace onepass::ops::attention
