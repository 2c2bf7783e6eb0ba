// Tensor maps by the driver's encoder, which the runtime finds: no program links the driver.

#include "ops/attention/gpu/hopper/tensor_map.hpp"

#include <cuda_runtime.h>

#include <string>

namespace onepass {
namespace {

auto* encoder() {
  static auto* const found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return found;
}

}  // namespace

Status make_tensor_map(const Heads& tensor, const std::array<std::int64_t, 4>& shape, int tokens,
                       int columns, CUtensorMap& out) {
  if (encoder() == nullptr) {
    return {Code::unsupported, "attention: the driver cannot make tensor maps"};
  }
  const cuuint64_t extents[4] = {
      static_cast<cuuint64_t>(shape[3]), static_cast<cuuint64_t>(shape[2]),
      static_cast<cuuint64_t>(shape[1]), static_cast<cuuint64_t>(shape[0])};
  // The stride of a dimension of one means nothing, and may be one that the encoder does not take.
  const auto bytes = [&](std::int64_t stride, std::int64_t extent) {
    return static_cast<cuuint64_t>(extent == 1 ? 16 : stride * 2);
  };
  const cuuint64_t strides[3] = {bytes(tensor.token, shape[2]), bytes(tensor.head, shape[1]),
                                 bytes(tensor.batch, shape[0])};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(columns), static_cast<cuuint32_t>(tokens), 1,
                             1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encoder()(&out,
                tensor.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                4, tensor.data, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return {Code::internal, "attention: the driver made no tensor map, error " +
                              std::to_string(static_cast<int>(result))};
}

}  // namespace onepass
