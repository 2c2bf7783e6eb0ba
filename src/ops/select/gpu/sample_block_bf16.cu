// The kernels of sample_block.cu for dense rows stored as bf16.

#include "ops/select/gpu/sample_block.cuh"

namespace onepass::ops::select {

template Status gpu_sample_block_of<BF16>(const RowArgs&, const gpu_select::SelectLaunch&);

}  // namespace onepass::ops::select
