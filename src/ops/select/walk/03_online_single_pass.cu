// topk/03_online_single_pass: state and candidates in one read.
//
// Idea    an element is merged into the thread's state and offered to its list while it is at hand.
// Versus  02_warp_merge: one pass in place of three, and two exponentials an element
//         in place of one.
// Bytes   x once; once more for every sixteen of the K largest that lie in one thread's slice.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`, with fill=clustered for the lists; numbers: docs/walk/topk.md.

#include "ops/select/walk/warp_merge.cuh"

namespace onepass::ops::select {
namespace {

template <class T>
__global__ void __launch_bounds__(kListThreads) online_single_pass_kernel(Rows<T> a) {
  __shared__ BlockMerge::Scratch of_warp;
  __shared__ WarpMerge::Shared shared;
  const T* x = a.in(blockIdx.x);

  State<float> mine = identity<float>();
  TopList list;
  for_slice(x, a.cols, [&](float z, unsigned column) {
    mine = merge(mine, leaf(z));
    list.offer(key_of(z, column));
  });
  const State<float> state = BlockMerge(of_warp).all(mine);

  const WarpMerge lists(shared, a.k);
  Key below = lists.add(list);
  while (__syncthreads_or(below != kNoKeys)) {
    list.gather(x, a.cols, below);
    below = lists.add(list);
  }

  write_answer(a, state, lists.keys());
}

}  // namespace

Status online_single_pass(const Call& call, const WalkLaunch& how) {
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    return launch(online_single_pass_kernel<T>, how, call, rows);
  });
}

}  // namespace onepass::ops::select
