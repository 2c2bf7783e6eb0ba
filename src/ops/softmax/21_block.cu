// softmax/21_block: a row in the registers of a block, or of a cluster of blocks.
//
// Idea    20_group, two levels higher: warps meet in shared memory, blocks of a cluster in each
//         other's. A row of 262,144 columns is still read once; a single row has up to 16 SMs.
// Versus  08_register_shared_extreme: longer rows by more blocks instead of more memory a block, so
//         that several blocks fit an SM and one computes while another loads.
// Bytes   x once, y once.
// Limits  rows that 16 blocks hold in registers (sm_90; one block before it); every op, dtype and
//         option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "dispatch/gpu_rows.hpp"
#include "merge/cluster.cuh"
#include "ops/softmax/forward.cuh"
#include "ops/softmax/ship.cuh"
#include "ops/softmax/variants.hpp"

namespace onepass::ops::softmax {
namespace {

static_assert(gpu_rows::kMostCluster == kMostCluster, "a block has a slot for each of its cluster");

template <class In, class Out, int P>
__global__ __launch_bounds__(512) void kernel(const __grid_constant__ RowArgs args, Reach reach) {
  using Row = ForwardRow<In, Out>;
  using T = typename Row::T;
  using Fold = ClusterFold<Merge<T>>;
  __shared__ typename Fold::Scratch scratch;
  const Fold cluster(scratch);
  const int split = cluster_size();
  const Row row(args, reach, args.first_row + blockIdx.x / split);

  // This block's piece of the row.
  const int piece = (row.packs() + split - 1) / split;
  const int begin = piece * cluster_rank();
  const int end = min(begin + piece, row.packs());
  const int first = begin + static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);

  T z[P * Row::kLanes];
  row.template load<P>(first, step, end, z);
  const State<T> mine = row.fold(z);
  const State<T> total = cluster.all(mine);
  row.template finish<P>(first, step, end, z, mine, total);
  if (begin == 0 && threadIdx.x == 0) row.conclude(total);
}

struct Kernels {
  template <class In, class Out, int P>
  static constexpr auto get() {
    return kernel<In, Out, P>;
  }
};

}  // namespace

Status gpu_block(const RowArgs& args, const Plan& plan) {
  return with_kernel<Kernels>(args, plan, [&](auto* kernel) {
    return launch_clusters(kernel, plan, args, args, reach_of(args.space, args.logits.x));
  });
}

}  // namespace onepass::ops::softmax
