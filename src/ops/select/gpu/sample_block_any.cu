// The kernel of sample_block.cu for rows with any options.

#include "ops/select/gpu/sample_block.cuh"

namespace onepass::ops::select {

template Status gpu_sample_block_of<void>(const RowArgs&, const gpu_select::SelectLaunch&);

}  // namespace onepass::ops::select
