// The kernels of sample_block.cu for dense rows stored as f32.

#include "ops/select/gpu/sample_block.cuh"

namespace onepass::ops::select {

template Status gpu_sample_block_of<float>(const RowArgs&, const gpu_select::SelectLaunch&);

}  // namespace onepass::ops::select
