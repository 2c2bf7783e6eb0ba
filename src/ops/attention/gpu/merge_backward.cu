// The gradients of a merge on a GPU: a warp per query, in float64 as on a CPU.

#include <cuda_runtime.h>

#include "core/cuda/dependent.cuh"
#include "merge/warp.cuh"
#include "ops/attention/merge.hpp"
#include "ops/attention/merge_backward.hpp"
#include "runtime/launch.cuh"

namespace onepass {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps* kLanes)
    merge_gradients(const __grid_constant__ MergeBackwardArgs args) {
  await_previous();
  const RowSpace& space = args.space;
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (row >= space.rows) return;
  const auto sum_of = [&](const Operand& operand) {
    return read_like<double>(row_data(space, operand, row), operand.dtype, 0);
  };
  const Shares<double> by = shares(sum_of(args.lse_a), sum_of(args.lse_b));
  const void* a = row_data(space, args.a, row);
  const void* b = row_data(space, args.b, row);
  const void* d_o = row_data(space, args.d_o, row);
  void* d_a = row_data(space, args.d_a, row);
  void* d_b = row_data(space, args.d_b, row);
  double difference = 0;
  for (std::int64_t c = lane; c < space.cols; c += kLanes) {
    const auto value = [&](const void* data, const Operand& operand) {
      return read_like<double>(data, operand.dtype, c * operand.col_stride);
    };
    const double each = value(d_o, args.d_o);
    difference += each * (value(a, args.a) - value(b, args.b));
    write_like(d_a, args.d_a.dtype, c * args.d_a.col_stride, by.a * each);
    write_like(d_b, args.d_b.dtype, c * args.d_b.col_stride, by.b * each);
  }
  difference = warp_fold(difference, Add<double>());
  if (lane != 0) return;
  const double d_lse = args.d_lse ? sum_of(args.d_lse) : 0;
  write_like(row_data(space, args.d_lse_a, row), args.d_lse_a.dtype, 0,
             gradient_of_lse(by.a, by.b, difference, d_lse));
  write_like(row_data(space, args.d_lse_b, row), args.d_lse_b.dtype, 0,
             gradient_of_lse(by.b, by.a, -difference, d_lse));
}

}  // namespace

Status merge_backward_on_gpu(const MergeBackwardArgs& args) {
  if (args.space.rows == 0) return {};
  return launch({.queue = args.queue,
                 .blocks = (args.space.rows + kWarps - 1) / kWarps,
                 .threads = kWarps * kLanes},
                "merge_attention_backward", merge_gradients, args);
}

}  // namespace onepass
