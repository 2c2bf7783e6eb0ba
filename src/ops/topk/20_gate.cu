// topk/20_gate: the experts of a token, by eight lanes or a warp.
//
// Idea    a row in the registers of a few lanes, as 32 or 64 lists. The largest of each make a limit that at least K
//         experts reach, and seldom many more; an expert's place is how many of these are before it.
// Versus  10_choose: no block, no barrier; four rows of a warp in the same instructions.
// Bytes   scores once.
// Limits  up to 1024 experts, K up to 32; f32, f16, bf16; any stride.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "dispatch/gpu_choose.hpp"
#include "ops/topk/answer.cuh"
#include "ops/topk/held_row.cuh"
#include "ops/topk/launch.cuh"
#include "ops/topk/select.hpp"
#include "ops/topk/variants.hpp"

namespace onepass::ops::topk {
namespace {

template <class Place>
struct GateArgs {
  SpaceOf<Place> space;
  std::int64_t rows;
  Place x, weights, experts;
  FlatPlace bias;  // one an expert
  int k;
  bool soft, renormalize;
  float scale;
};

template <class Place>
GateArgs<Place> gate_args(const RowArgs& args) {
  const Select& select = *args.select;
  return {.space = space_of<Place>(args.space),
          .rows = args.space.rows,
          .x = place_of<Place>(args.logits.x),
          .weights = place_of<Place>(args.out),
          .experts = place_of<Place>(select.indices),
          .bias = place_of<FlatPlace>(select.bias),
          .k = static_cast<int>(select.k),
          .soft = select.score == GateScore::softmax,
          .renormalize = select.renormalize,
          .scale = static_cast<float>(select.scale)};
}

// Lanes of a warp have a row, N experts each. Biased: what is chosen by is not the score itself.
template <class In, int Lanes, int N, class Place, bool Biased>
__global__ __launch_bounds__(gpu_choose::kGateThreads, gpu_choose::kGateBlocks) void gate_rows(
    const __grid_constant__ GateArgs<Place> args) {
  using Held = HeldRow<Lanes, N, std::is_same_v<Place, FlatPlace> ? Pack<In>::kLanes : 1>;
  __shared__ KeySlots<Lanes> slots[gpu_choose::kGateThreads / Lanes];
  await_previous();
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / Lanes;
  const std::int64_t row = min(at, args.rows - 1);  // a warp works as a whole
  const auto* x = static_cast<const In*>(address_of(args.space, args.x, row));
  const std::int64_t stride = Held::kPack > 1 ? 1 : args.x.col_stride;
  const Held held(static_cast<int>(args.space.cols));
  float z[N];
  held.load(x, stride, z);
  auto lists = held.lists(z);
  const State<float> whole = held.state(z, lists, 1.0F);
  bool broken = args.soft ? whole.d != whole.d : whole.m != whole.m;
  const auto score = [&](float value) {
    return args.soft ? weight(whole, value) : 1.0F / (1.0F + exponential(-value));
  };
  const auto biased = [&](float value, int e) {
    return score(value) +
           element_at<float>(args.bias.data, args.bias.dtype, e * args.bias.col_stride);
  };
  if constexpr (Biased) {
    bool odd = broken;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int e = held.column(j);
      if (e < args.space.cols) z[j] = biased(z[j], e);
      odd = odd || z[j] != z[j];
    }
    lists = held.lists(z);
    broken = group_fold(odd ? 1 : 0, Add<int>(), Lanes) != 0;
  }
  const Key key = held.largest(z, lists, args.k, slots[threadIdx.x / Lanes], [&](int e) {
    const float value = widen(x[e * stride]);
    return Biased ? biased(value, e) : value;
  });
  const int lane = held.lane();
  const bool writes = lane < args.k;
  const auto expert = static_cast<int>(index_of(key));
  float kept = value_of(key);
  if (Biased && writes && !broken) kept = widen(x[expert * stride]);
  kept = writes ? score(kept) : 0;
  float factor = args.scale;
  if (args.renormalize) {
    const float sum = group_fold(kept, Add<float>(), Lanes);
    if (sum != 0) factor /= sum;
  }
  if (!writes || at != row) return;
  RowOut(args.space, args.weights, row)
      .put(lane, broken ? std::numeric_limits<float>::quiet_NaN() : kept * factor);
  RowOut(args.space, args.experts, row).put(lane, broken ? -1LL : static_cast<long long>(expert));
}

template <class In, class Place>
Status run_gate(const RowArgs& args, const Plan& plan) {
  return with_held(plan.row_threads, args.space.cols, [&]<int Lanes, int N>() {
    const auto kernel = args.select->bias ? gate_rows<In, Lanes, N, Place, true>
                                          : gate_rows<In, Lanes, N, Place, false>;
    return launch(launch_of(args, plan), plan.variant, kernel, gate_args<Place>(args));
  });
}

}  // namespace

Status gpu_gate(const RowArgs& args, const Plan& plan) {
  return with_stored(args, [&]<class In>(Type<In>) {
    return in_packs(args.space, args.logits.x) ? run_gate<In, FlatPlace>(args, plan)
                                               : run_gate<In, Operand>(args, plan);
  });
}

}  // namespace onepass::ops::topk
