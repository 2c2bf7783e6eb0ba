#include "cli/measure/peers_cudnn.hpp"

#include <fmt/format.h>

#include <limits>
#include <memory>

#include "runtime/gpu.hpp"

#ifdef ONEPASS_HAS_CUDNN
#include <cudnn.h>
#endif

namespace onepass::cli {

bool cudnn_computes(Op op, Device device) {
  return device == Device::cuda && (op == Op::softmax || op == Op::log_softmax);
}

#ifdef ONEPASS_HAS_CUDNN
namespace {

Status status_of(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return {Code::unsupported, fmt::format("cudnn: {}", cudnnGetErrorString(status))};
}

struct Shape {
  cudnnTensorDescriptor_t descriptor = nullptr;
  ~Shape() { cudnnDestroyTensorDescriptor(descriptor); }

  // rows images of cols channels, one pixel each.
  Status make(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    if (rows > most || cols > most || stride > most) {
      return {Code::unsupported, "cudnn: counts with 32 bits"};
    }
    const cudnnDataType_t type = dtype == DType::f16    ? CUDNN_DATA_HALF
                                 : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                                        : CUDNN_DATA_FLOAT;
    if (Status status = status_of(cudnnCreateTensorDescriptor(&descriptor)); !status.ok()) {
      return status;
    }
    return status_of(cudnnSetTensor4dDescriptorEx(descriptor, type, static_cast<int>(rows),
                                                  static_cast<int>(cols), 1, 1,
                                                  static_cast<int>(stride), 1, 1, 1));
  }
};

Status prepare(const Call& call, cudnnSoftmaxAlgorithm_t algorithm, std::function<void()>& run) {
  const Case& spec = call.spec();
  Problem problem;
  if (Status status = describe(spec, problem); !status.ok()) return status;
  if (spec.in != spec.out || spec.in == DType::f64 || !problem.plain || !problem.whole_rows ||
      spec.lse || !problem.unit_stride || !problem.even_rows) {
    return {Code::unsupported, "cudnn: softmax of dense rows of one dtype without options only"};
  }
  cudnnHandle_t cudnn = nullptr;
  if (Status status = cudnn_handle(cudnn); !status.ok()) return status;
  const auto shape = std::make_shared<Shape>();
  const Tensor x = call.view(call.in());
  const Tensor y = call.view(call.out());
  const std::int64_t stride =
      x.rank < 2 ? problem.cols : x.strides[static_cast<std::size_t>(x.rank - 2)];
  if (Status status = shape->make(spec.in, problem.rows, problem.cols, stride); !status.ok()) {
    return status;
  }
  run = [cudnn, shape, algorithm, x, y] {
    const float one = 1;
    const float zero = 0;
    const Status status =
        status_of(cudnnSoftmaxForward(cudnn, algorithm, CUDNN_SOFTMAX_MODE_INSTANCE, &one,
                                      shape->descriptor, x.data, &zero, shape->descriptor, y.data));
    if (!status.ok()) throw std::runtime_error(status.message());
  };
  return {};
}

}  // namespace

Status cudnn_handle(cudnnContext*& out) {
  static cudnnHandle_t made = nullptr;
  static const cudnnStatus_t status = cudnnCreate(&made);
  out = made;
  return status_of(status);
}

std::string cudnn_obstacle() { return gpu::available().message(); }

Status prepare_cudnn_accurate(const Call& call, int, std::function<void()>& run) {
  return prepare(call, call.spec().op == Op::softmax ? CUDNN_SOFTMAX_ACCURATE : CUDNN_SOFTMAX_LOG,
                 run);
}

Status prepare_cudnn_fast(const Call& call, int, std::function<void()>& run) {
  if (call.spec().op != Op::softmax) return {Code::unsupported, "cudnn: softmax only"};
  return prepare(call, CUDNN_SOFTMAX_FAST, run);
}

#else

std::string cudnn_obstacle() { return "cuDNN was not found when this was built"; }

Status cudnn_handle(cudnnContext*&) { return {Code::unsupported, cudnn_obstacle()}; }

Status prepare_cudnn_accurate(const Call&, int, std::function<void()>&) {
  return {Code::unsupported, cudnn_obstacle()};
}

Status prepare_cudnn_fast(const Call&, int, std::function<void()>&) {
  return {Code::unsupported, cudnn_obstacle()};
}

#endif

}  // namespace onepass::cli
