// softmax/20_group: short rows, a few lanes each, several rows a warp.
//
// Idea    16 bytes a lane: a row of 32 bf16 is four lanes, and a warp has eight rows on their way.
//         A group of lanes folds with shuffles alone.
// Versus  06_register_packed: no block, no barrier, no shared memory.
// Bytes   x once, y once.
// Limits  rows that a warp holds in registers; every op, dtype and option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "merge/warp.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/ship.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {
namespace {

template <class In, class Out, int P>
__global__ __launch_bounds__(256) void kernel(const __grid_constant__ RowArgs args, Reach reach,
                                              int lanes) {
  using Row = ForwardRow<In, Out>;
  using T = typename Row::T;
  const auto lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t groups = static_cast<int>(blockDim.x) / lanes;
  for (std::int64_t base = args.first_row + blockIdx.x * groups; base < args.end_row;
       base += gridDim.x * groups) {
    // A group past the last row goes along, for the warp's shuffles, and writes nothing.
    const std::int64_t wanted = base + static_cast<int>(threadIdx.x) / lanes;
    const bool real = wanted < args.end_row;
    const Row row(args, reach, real ? wanted : args.end_row - 1);
    T z[P * Row::kLanes];
    row.template load<P>(lane, lanes, row.packs(), z);
    const State<T> mine = row.fold(z);
    const State<T> total = group_fold(mine, Merge<T>(), lanes);
    if (!real) continue;
    row.template finish<P>(lane, lanes, row.packs(), z, mine, total);
    if (lane == 0) row.conclude(total);
  }
}

struct Kernels {
  template <class In, class Out, int P>
  static constexpr auto get() {
    return kernel<In, Out, P>;
  }
};

}  // namespace

Status gpu_group(const RowArgs& args, const Plan& plan) {
  return with_kernel<Kernels>(args, plan, [&](auto* kernel) {
    return launch(kernel, plan, args, args, reach_of(args.space, args.logits.x), plan.row_threads);
  });
}

}  // namespace onepass::ops::softmax
