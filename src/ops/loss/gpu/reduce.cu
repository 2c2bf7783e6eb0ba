// The sum or mean of all rows' losses, by one block, in the same order every time; and the factor
// that the mean's gradient needs.

#include "core/cuda/dependent.cuh"
#include "merge/block.cuh"
#include "ops/loss/gpu/reduce.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::loss {
namespace {

constexpr int kReduceThreads = 1024;

// Rows that are not ignored, by the weights of their targets. With probabilities, every row.
__device__ double counted_rows(const RowArgs& args, const BlockFold<Add<double>>& block) {
  if (args.has_probabilities) return static_cast<double>(args.space.rows);
  double count = 0;
  for (std::int64_t row = threadIdx.x; row < args.space.rows; row += blockDim.x) {
    const void* target = row_data(args.space, args.target, row);
    const std::int64_t index = args.target.dtype == DType::i32
                                   ? *static_cast<const std::int32_t*>(target)
                                   : *static_cast<const std::int64_t*>(target);
    if (index == args.ignore_index) continue;
    const bool is_class = index >= 0 && index < args.space.cols;
    count += args.weight && is_class ? weight_of(args.weight, index) : 1;
  }
  return block.all(count);
}

__global__ void __launch_bounds__(kReduceThreads) sum_losses(const __grid_constant__ RowArgs args) {
  __shared__ BlockFold<Add<double>>::Scratch scratch;
  const BlockFold<Add<double>> block(scratch);
  await_previous();
  double mine = 0;
  for (std::int64_t row = threadIdx.x; row < args.space.rows; row += blockDim.x) {
    mine += args.row_losses[row];
  }
  double total = block.all(mine);
  if (args.reduction == Reduction::mean) {
    const double count = counted_rows(args, block);
    total = count == 0 ? 0 : total / count;
  }
  const Operand& to = args.loss ? args.loss : args.out;
  if (threadIdx.x == 0) write_like(to.data, to.dtype, 0, total);
}

__global__ void __launch_bounds__(kReduceThreads) count_rows(const __grid_constant__ RowArgs args) {
  __shared__ BlockFold<Add<double>>::Scratch scratch;
  await_previous();
  const double count = counted_rows(args, BlockFold<Add<double>>(scratch));
  if (threadIdx.x == 0) *args.mean_scale = count == 0 ? 0 : 1 / count;
}

Status run_one_block(void (*kernel)(RowArgs), const RowArgs& args) {
  return launch({.queue = args.queue, .threads = kReduceThreads}, "reduce", kernel, args);
}

}  // namespace

Status reduce_losses(const RowArgs& args) { return run_one_block(sum_losses, args); }

Status find_mean_scale(const RowArgs& args) { return run_one_block(count_rows, args); }

}  // namespace onepass::ops::loss
