// The kernels of sample.cu for rows stored as f32.

#include "ops/select/gpu/sample_rows.cuh"

namespace onepass::ops::select {

template Status gpu_sample_of<float>(const RowArgs&, const gpu_select::SelectLaunch&);

}  // namespace onepass::ops::select
