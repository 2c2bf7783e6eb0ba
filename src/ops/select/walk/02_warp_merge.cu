// topk/02_warp_merge: the lists become one by shuffles.
//
// Idea    K times the 32 lanes of a warp show the largest that they have left, five exchanges say
//         whose is the largest of all, and that lane goes on to its next. The warps' lists are
//         merged the same way.
// Versus  01_three_pass_local: the merge. All warps work at once, and what comes out is in order.
// Bytes   as 01_three_pass_local.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`, with fill=clustered for the lists; numbers: docs/walk/topk.md.

#include "ops/select/walk/warp_merge.cuh"

namespace onepass::ops::select {
namespace {

template <class T>
__global__ void __launch_bounds__(kListThreads) warp_merge_kernel(Rows<T> a) {
  __shared__ float of_warp[32];
  __shared__ WarpMerge::Shared shared;
  const T* x = a.in(blockIdx.x);

  const State<float> state = state_in_two_passes(x, a.cols, of_warp);

  const WarpMerge lists(shared, a.k);
  TopList list;
  Key below = kAllKeys;
  do {
    list.gather(x, a.cols, below);
    below = lists.add(list);
  } while (__syncthreads_or(below != kNoKeys));

  write_answer(a, state, lists.keys());
}

}  // namespace

Status warp_merge(const Call& call, const WalkLaunch& how) {
  return with_rows(
      call, [&]<class T>(Rows<T> rows) { return launch(warp_merge_kernel<T>, how, call, rows); });
}

}  // namespace onepass::ops::select
