// What the kernels of the walk have in common: their argument, and the way from a checked call to
// it. The kernels themselves are one a file, 00 to 11, in reading order.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/pack.cuh"
#include "ops/softmax/walk/plan.hpp"
#include "rows/args.hpp"
#include "runtime/launch.hpp"

namespace onepass::ops::softmax {

// Rows of x and y, each at one stride. Offsets are 64 bits wide throughout.
template <class Element>
struct Rows {
  using T = Element;
  const T* x;
  T* y;
  std::int64_t rows, cols, x_stride, y_stride;

  __device__ const T* in(std::int64_t row) const { return x + row * x_stride; }
  __device__ T* out(std::int64_t row) const { return y + row * y_stride; }
  __device__ PackedRow<T> packed(std::int64_t row) const { return {in(row), out(row), cols}; }
};

// Calls body(Rows<T>) with the type of the call's elements.
template <class Body>
Status with_rows(const RowArgs& args, Body body) {
  const auto as = [&]<class T>(Type<T>) {
    return body(Rows<T>{static_cast<const T*>(args.logits.x.data), static_cast<T*>(args.out.data),
                        args.space.rows, args.space.cols, args.logits.x.row_strides[0],
                        args.out.row_strides[0]});
  };
  switch (args.logits.x.dtype) {
    case DType::f16: return as(Type<F16>{});
    case DType::bf16: return as(Type<BF16>{});
    default: return as(Type<float>{});
  }
}

// Launches kernel(rows, more...) as planned.
template <class T, class... More>
Status launch(void (*kernel)(Rows<T>, More...), const WalkLaunch& how, const RowArgs& args,
              Rows<T> rows, More... more) {
  if (how.shared_bytes > 0) {
    if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), how.shared_bytes);
        !status.ok()) {
      return status;
    }
  }
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads), how.shared_bytes,
           static_cast<cudaStream_t>(args.queue.stream)>>>(rows, more...);
  return launch_status("softmax's walk");
}

// The same with all blocks on the GPU at once, so that they can wait for each other.
template <class T, class... More>
Status launch_cooperative(void (*kernel)(Rows<T>, More...), const WalkLaunch& how,
                          const RowArgs& args, Rows<T> rows, More... more) {
  void* arguments[] = {&rows, &more...};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel),
                              static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads),
                              arguments, how.shared_bytes,
                              static_cast<cudaStream_t>(args.queue.stream));
  return launch_status("softmax's walk");
}

}  // namespace onepass::ops::softmax
