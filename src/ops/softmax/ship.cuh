// From a checked call to the kernel that was compiled for it: stored types and packs a thread.
#pragma once

#include <cuda_runtime.h>

#include "onepass/plan.hpp"
#include "ops/row/device_row.cuh"
#include "runtime/launch.hpp"

namespace onepass::ops::softmax {

// Calls body(Kernels::get<In, Out, P>()). The usual pairs of dtypes without options are compiled as
// such; everything else is the general row, of four packs a thread (of f64 and 16 bits, too, that is
// what the registers hold).
template <class Kernels, class Body>
Status with_kernel(const RowArgs& args, const Plan& plan, Body body) {
  const auto packs = [&]<class In, class Out>(Type<In>, Type<Out>) {
    constexpr int most = sizeof(In) == 4 ? 8 : 4;
    if constexpr (!std::is_void_v<Out>) {
      if (plan.packs == 1) return body(Kernels::template get<In, Out, 1>());
      if (plan.packs == 2) return body(Kernels::template get<In, Out, 2>());
      if (plan.packs == 8) return body(Kernels::template get<In, Out, most>());
    }
    return body(Kernels::template get<In, Out, 4>());
  };
  const DType in = args.logits.x.dtype;
  const DType out = args.op == Op::logsumexp ? in : args.out.dtype;
  const bool special = !plan.general;
  switch (in) {
    case DType::f16:
      if (special && out == DType::f16) return packs(Type<F16>{}, Type<F16>{});
      if (special && out == DType::f32) return packs(Type<F16>{}, Type<float>{});
      return packs(Type<F16>{}, Type<void>{});
    case DType::bf16:
      if (special && out == DType::bf16) return packs(Type<BF16>{}, Type<BF16>{});
      if (special && out == DType::f32) return packs(Type<BF16>{}, Type<float>{});
      return packs(Type<BF16>{}, Type<void>{});
    case DType::f64: return packs(Type<double>{}, Type<void>{});
    default:
      if (special && out == DType::f32) return packs(Type<float>{}, Type<float>{});
      return packs(Type<float>{}, Type<void>{});
  }
}

template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), const Plan& plan, const RowArgs& args,
              Arguments... arguments) {
  kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), 0,
           static_cast<cudaStream_t>(args.stream)>>>(arguments...);
  return launch_status(plan.variant);
}

// plan.split blocks a cluster.
template <class... Parameters, class... Arguments>
Status launch_clusters(void (*kernel)(Parameters...), const Plan& plan, const RowArgs& args,
                       Arguments... arguments) {
  if (plan.split == 1) return launch(kernel, plan, args, arguments...);
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(plan.blocks);
  config.blockDim = static_cast<unsigned>(plan.threads);
  config.stream = static_cast<cudaStream_t>(args.stream);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(plan.split), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  if (plan.split > 8) {  // more than every GPU with clusters promises
    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  cudaLaunchKernelEx(&config, kernel, arguments...);
  return launch_status(plan.variant);
}

// All blocks on the GPU at once, so that they can wait for each other.
template <class... Parameters>
Status launch_grid(void (*kernel)(Parameters...), const Plan& plan, const RowArgs& args,
                   Parameters... parameters) {
  if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), plan.shared_bytes);
      !status.ok()) {
    return status;
  }
  void* pointers[] = {&parameters...};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel),
                              static_cast<unsigned>(plan.blocks),
                              static_cast<unsigned>(plan.threads), pointers, plan.shared_bytes,
                              static_cast<cudaStream_t>(args.stream));
  return launch_status(plan.variant);
}

}  // namespace onepass::ops::softmax
