// topk/03_online_single_pass: state and candidates in one read.
//
// Idea    an element is merged into the thread's state and offered to its list while it is at hand.
// Versus  02_warp_merge: one pass in place of three, and two exponentials an element in place of one.
// Bytes   x once; once more for every sixteen of the K largest that lie in one thread's slice.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`, with fill=clustered for the lists; numbers: docs/walk/topk.md.

#include "ops/select/walk/variants.hpp"
#include "ops/select/walk/warp_merge.cuh"

namespace onepass::ops::topk {
namespace {

template <class Row>
__global__ __launch_bounds__(geometry::kListThreads) void online_single_pass_kernel(
    const __grid_constant__ typename Row::Args args, const __grid_constant__ Common common,
    const __grid_constant__ TopkOutputs out) {
  __shared__ BlockMerge::Scratch states;
  __shared__ BlockFold<Add<float>>::Scratch sums;
  __shared__ WarpMerge::Shared shared;
  const Row row = row_of_block<Row>(args, common);

  State<float> mine = identity<float>();
  TopList list;
  for_slice(row, args.cols, [&](float x, unsigned column) {
    mine = merge(mine, leaf(x));
    list.offer(key_of(x, column));
  });
  const State<float> state = BlockMerge(states).all(mine);

  const WarpMerge lists(shared, static_cast<int>(out.k));
  Key below = lists.add(list);
  while (__syncthreads_or(below != kNoKeys)) {
    list.gather(row, args.cols, below);
    below = lists.add(list);
  }

  const Answer answer(common, out, common.first_row + blockIdx.x, row, state);
  answer.write_keys(lists.keys(), static_cast<int>(out.k), sums);
}

}  // namespace

Status online_single_pass(const RowArgs& args, const WalkLaunch& how) {
  return launch_walk(args, how,
                     []<class Row>(Type<Row>) { return online_single_pass_kernel<Row>; });
}

}  // namespace onepass::ops::topk
