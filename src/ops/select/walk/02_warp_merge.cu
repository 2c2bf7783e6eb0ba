// topk/02_warp_merge: the lists become one by shuffles.
//
// Idea    K times the 32 lanes of a warp show the largest that they have left, five exchanges say whose is the
//         largest of all, and that lane goes on to its next. The warps' lists are merged the same way.
// Versus  01_three_pass_local: the merge. All warps work at once, and what comes out is in order.
// Bytes   as 01_three_pass_local.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`, with fill=clustered for the lists; numbers: docs/walk/topk.md.

#include "ops/select/walk/variants.hpp"
#include "ops/select/walk/warp_merge.cuh"

namespace onepass::ops::topk {
namespace {

template <class Row>
__global__ __launch_bounds__(geometry::kListThreads) void warp_merge_kernel(
    const __grid_constant__ typename Row::Args args, const __grid_constant__ Common common,
    const __grid_constant__ TopkOutputs out) {
  __shared__ float of_warp[32];
  __shared__ WarpMerge::Shared shared;
  const Row row = row_of_block<Row>(args, common);

  const State<float> state = state_in_two_passes(row, args.cols, of_warp);

  const WarpMerge lists(shared, static_cast<int>(out.k));
  TopList list;
  Key below = kAllKeys;
  do {
    list.gather(row, args.cols, below);
    below = lists.add(list);
  } while (__syncthreads_or(below != kNoKeys));

  const Answer answer(common, out, common.first_row + blockIdx.x, row, state);
  answer.write_keys(lists.keys(), static_cast<int>(out.k), of_warp);
}

}  // namespace

Status warp_merge(const RowArgs& args, const WalkLaunch& how) {
  return launch_walk(args, how, []<class Row>(Type<Row>) { return warp_merge_kernel<Row>; });
}

}  // namespace onepass::ops::topk
