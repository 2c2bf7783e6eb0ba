// topk/00_unfused: softmax into memory, then the largest one after the other.
//
// Idea    what one writes with two kernels at hand: one block per row writes the row's
//         probabilities; then one block per row looks K times for the largest that it
//         has not taken yet.
// Versus  nothing: this is where the walk begins.
// Bytes   x three times and a row of f32 written; then x K times, from a cache if it stays there.
//         Elements are compared as logits: probabilities of different ones may be equal, and
//         those of most are 0.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`; numbers: docs/walk/topk.md.

#include "ops/select/walk/launch.cuh"

namespace onepass::ops::select {
namespace {

template <class T>
__global__ void __launch_bounds__(kWideThreads) unfused_weigh(Rows<T> a, float* probabilities) {
  __shared__ float of_warp[32];
  const T* x = a.in(blockIdx.x);
  const State<float> state = state_in_two_passes(x, a.cols, of_warp);
  float* p = probabilities + blockIdx.x * a.cols;
  for_slice(x, a.cols, [&](float z, unsigned column) { p[column] = weight(state, z); });
}

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    unfused_select(Rows<T> a, const float* probabilities) {
  __shared__ BlockFold<LargestKey>::Scratch of_warp;
  __shared__ Key keys[kMostK];
  const auto thread = static_cast<int>(threadIdx.x);

  // Each time the largest below the one before: no two keys are equal.
  Key last = ~Key{0};
  bool has_nan = false;
  for (int i = 0; i < a.k; ++i) {
    Key mine = 0;
    for_slice(a.in(blockIdx.x), a.cols, [&](float z, unsigned column) {
      const Key key = key_of(z, column);
      if (key < last) mine = max(mine, key);
      has_nan |= z != z;
    });
    last = BlockFold<LargestKey>(of_warp).all(mine);
    if (thread == 0) keys[i] = last;
  }
  has_nan = __syncthreads_or(has_nan) != 0;  // a barrier, too: all threads see the keys

  if (thread >= a.k) return;
  const unsigned index = index_of(keys[thread]);
  const std::int64_t row = blockIdx.x;
  a.values[row * a.values_stride + thread] = narrow<T>(probabilities[row * a.cols + index]);
  a.indices[row * a.indices_stride + thread] = has_nan ? -1 : static_cast<int>(index);
}

static_assert(kMostK <= kWideThreads, "a thread writes one of the K");

}  // namespace

Status unfused(const Call& call, const WalkLaunch& how) {
  auto* p = static_cast<float*>(call.workspace);
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    Status status = launch(unfused_weigh<T>, how, call, rows, p);
    if (!status.ok()) return status;
    return launch(unfused_select<T>, how, call, rows, static_cast<const float*>(p));
  });
}

}  // namespace onepass::ops::select
