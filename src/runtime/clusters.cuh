// A launch of blocks in clusters.
#pragma once

#include <cuda_runtime.h>

#include "onepass/plan.hpp"
#include "runtime/launch.hpp"

namespace onepass {

// Of `size` blocks each; 1: no clusters.
template <class... Params, class... Args>
Status launch_clusters(void (*kernel)(Params...), cudaLaunchConfig_t config, int size,
                       std::string_view variant, const Args&... args) {
  if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), config.dynamicSmemBytes);
      !status.ok()) {
    return status;
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = size > 1 ? 1 : 0;
  if (size > 8) {  // more than every GPU with clusters promises
    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  cudaLaunchKernelEx(&config, kernel, args...);
  return launch_status(variant);
}

}  // namespace onepass
