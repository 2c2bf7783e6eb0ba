// topk/00_unfused: softmax into memory, then the largest one after the other.
//
// Idea    what one writes with two kernels at hand: a block a row writes the row's probabilities; then a block a
//         row looks K times for the largest that it has not taken yet.
// Versus  nothing: this is where the walk begins.
// Bytes   x three times and a row of f32 written; then x K times, from a cache if it stays there. Elements are
//         compared as logits: probabilities of different ones may be equal, and those of most are 0.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options; probabilities, as they are or renormalized.
// Proof   `onepass verify`; numbers: docs/walk/topk.md.

#include "ops/select/walk/rows.cuh"
#include "ops/select/walk/variants.hpp"

namespace onepass::ops::topk {
namespace {

template <class Row>
__global__ __launch_bounds__(geometry::kWideThreads) void unfused_weigh(
    const __grid_constant__ typename Row::Args args, const __grid_constant__ Common common,
    float* probabilities) {
  __shared__ float of_warp[32];
  const Row row = row_of_block<Row>(args, common);
  const State<float> state = state_in_two_passes(row, args.cols, of_warp);
  float* p = probabilities + blockIdx.x * args.cols;
  for_slice(row, args.cols, [&](float x, unsigned column) { p[column] = weight(state, x); });
}

template <class Row>
__global__ __launch_bounds__(geometry::kWideThreads) void unfused_select(
    const __grid_constant__ typename Row::Args args, const __grid_constant__ Common common,
    const __grid_constant__ TopkOutputs out, const float* probabilities) {
  __shared__ BlockFold<LargestKey>::Scratch of_warp;
  __shared__ BlockFold<Add<float>>::Scratch sums;
  __shared__ Key keys[geometry::kMostK];
  const Row row = row_of_block<Row>(args, common);
  const float* p = probabilities + blockIdx.x * args.cols;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto k = static_cast<int>(out.k);

  // Each time the largest below the one before: no two keys are equal.
  Key last = ~Key{0};
  bool has_nan = false;
  for (int i = 0; i < k; ++i) {
    Key mine = 0;
    for_slice(row, args.cols, [&](float x, unsigned column) {
      const Key key = key_of(x, column);
      if (key < last) mine = max(mine, key);
      has_nan |= x != x;
    });
    last = BlockFold<LargestKey>(of_warp).all(mine);
    if (thread == 0) keys[i] = last;
  }
  has_nan = __syncthreads_or(has_nan) != 0;  // from here on everybody sees the keys

  float sum = 1;
  if (out.values == TopkValues::renormalized) {
    sum = BlockFold<Add<float>>(sums).all(thread < k ? p[index_of(keys[thread])] : 0);
  }
  if (thread >= k) return;
  const unsigned index = index_of(keys[thread]);
  int to = thread;
  if (!out.sorted) {
    to = 0;
    for (int i = 0; i < k; ++i) to += index_of(keys[i]) < index ? 1 : 0;
  }
  const std::int64_t at = common.first_row + blockIdx.x;
  RowOut(common.space, out.indices, at).put(to, has_nan ? -1LL : static_cast<long long>(index));
  RowOut(common.space, out.out, at).put(to, sum == 0 ? 0 : p[index] / sum);
}

static_assert(geometry::kMostK <= geometry::kWideThreads, "a thread writes one of the chosen");

}  // namespace

Status unfused(const RowArgs& args, const WalkLaunch& how) {
  const TopkOutputs out = outputs_of(args);
  const Common common = common_of(args, temperature_of(args));
  auto* p = reinterpret_cast<float*>(args.workspace);
  return with_stored(args, [&]<class In>(Type<In>) {
    using Row = ChooseRow<In, In>;
    Status status = launch_rows(unfused_weigh<Row>, "unfused", args, how, common, p);
    if (!status.ok()) return status;
    return launch_rows(unfused_select<Row>, "unfused", args, how, common, out,
                       static_cast<const float*>(p));
  });
}

}  // namespace onepass::ops::topk
