// A launch of any kind.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/launch.hpp"
#include "runtime/queue.hpp"

namespace onepass {

struct LaunchConfig {
  Queue queue;
  std::int64_t blocks = 1;
  int threads = 1;
  std::size_t shared_bytes = 0;
  int cluster = 1;        // blocks each; 1: no clusters
  bool together = false;  // all blocks on the GPU at once, so that they can wait for each other
};

// Every thread of the kernel calls await_previous() before it touches memory, unless its
// blocks come together.
template <class... Params, class... Args>
Status launch(const LaunchConfig& how, std::string_view variant, void (*kernel)(Params...),
              const Args&... args) {
  if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), how.shared_bytes);
      !status.ok()) {
    return status;
  }
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(how.blocks);
  config.blockDim = static_cast<unsigned>(how.threads);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = static_cast<cudaStream_t>(how.queue.stream);
  config.attrs = attributes;
  const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute = {};
    attribute.id = id;
    return attribute.val;
  };
  if (how.cluster > 1) {
    add(cudaLaunchAttributeClusterDimension).clusterDim = {static_cast<unsigned>(how.cluster), 1,
                                                           1};
  }
  if (how.cluster > 8) {  // more than every GPU with clusters promises
    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (how.together) {
    add(cudaLaunchAttributeCooperative).cooperative = 1;
  } else if (how.queue.early) {
    add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed =
        1;
  }
  cudaLaunchKernelEx(&config, kernel, args...);
  return launch_status(variant);
}

}  // namespace onepass
