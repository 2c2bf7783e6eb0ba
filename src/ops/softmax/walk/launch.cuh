// How a step launches its kernel: for the type that the rows have, as planned.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/element.cuh"
#include "ops/softmax/walk/walk.hpp"
#include "runtime/launch.hpp"

namespace onepass::ops::softmax {

// Calls body(Rows<T>) with the type of the call's elements.
template <class Body>
Status with_rows(const Call& call, Body body) {
  return std::visit(body, call.rows);
}

// Launches kernel(rows, more...).
template <class T, class... More>
Status launch(void (*kernel)(Rows<T>, More...), const WalkLaunch& how, const Call& call,
              Rows<T> rows, More... more) {
  if (how.shared_bytes > 0) {
    if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), how.shared_bytes);
        !status.ok()) {
      return status;
    }
  }
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads), how.shared_bytes,
           static_cast<cudaStream_t>(call.stream)>>>(rows, more...);
  return launch_status("softmax's walk");
}

// The same with all blocks on the GPU at once, so that they can wait for each other.
template <class T, class... More>
Status launch_cooperative(void (*kernel)(Rows<T>, More...), const WalkLaunch& how, const Call& call,
                          Rows<T> rows, More... more) {
  void* arguments[] = {&rows, &more...};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel),
                              static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads),
                              arguments, how.shared_bytes, static_cast<cudaStream_t>(call.stream));
  return launch_status("softmax's walk");
}

}  // namespace onepass::ops::softmax
