// Two results of attention as one on a GPU: a warp per query.

#include <cuda_runtime.h>

#include "core/cuda/dependent.cuh"
#include "ops/attention/merge.hpp"
#include "runtime/launch.cuh"

namespace onepass {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps* kLanes)
    merge_rows(const __grid_constant__ MergeArgs args) {
  await_previous();
  const RowSpace& space = args.space;
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (row >= space.rows) return;
  const auto lse_of = [&](const Operand& operand) {
    return read_like<float>(row_data(space, operand, row), operand.dtype, 0);
  };
  const Shares<float> by = shares(lse_of(args.lse_a), lse_of(args.lse_b));
  __syncwarp();  // before lse is written, which may be one of the two
  const void* a = row_data(space, args.a, row);
  const void* b = row_data(space, args.b, row);
  void* o = row_data(space, args.o, row);
  for (std::int64_t c = lane; c < space.cols; c += kLanes) {
    const auto value = [&](const void* data, const Operand& operand) {
      return read_like<float>(data, operand.dtype, c * operand.col_stride);
    };
    write_like(o, args.o.dtype, c * args.o.col_stride,
               by.a * value(a, args.a) + by.b * value(b, args.b));
  }
  if (args.lse && lane == 0) write_like(row_data(space, args.lse, row), args.lse.dtype, 0, by.lse);
}

}  // namespace

Status merge_on_gpu(const MergeArgs& args) {
  if (args.space.rows == 0) return {};
  return launch({.queue = args.queue,
                 .blocks = (args.space.rows + kWarps - 1) / kWarps,
                 .threads = kWarps * kLanes},
                "merge_attention", merge_rows, args);
}

}  // namespace onepass
