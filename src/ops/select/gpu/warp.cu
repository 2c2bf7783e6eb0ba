// topk/gpu_warp: short rows, eight lanes or a warp each.
//
// Idea    the row in the registers of a few lanes, as gate_warp.cu has it, with a target's
//         place beside it.
// Versus  gpu_block: no block, no barrier.
// Bytes   x once.
// Limits  up to 1024 columns, K up to 32; f32, f16, bf16; any stride, a positive scale
//         and a temperature.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/held_row.cuh"
#include "ops/select/gpu/launch.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

// What lane i writes for the i-th of the selected.
template <int Lanes>
__device__ inline float value_for_lane(TopkValues values, const State<float>& state, float z,
                                       bool writes) {
  switch (values) {
    case TopkValues::logit: return z;
    case TopkValues::log_probability: return log_probability(state, z);
    case TopkValues::renormalized: {
      const float own = writes ? weight(state, z) : 0;
      const float sum = group_fold(own, Add<float>(), Lanes);
      return sum == 0 ? 0 : own / sum;
    }
    default: return weight(state, z);
  }
}

// Lanes of a warp have a row, N columns each.
template <class In, int Lanes, int N, class Place>
__global__ void __launch_bounds__(gpu_select::kGateThreads, gpu_select::kGateBlocks)
    warp_rows(const __grid_constant__ Place x, const __grid_constant__ CommonOf<Place> common,
              const __grid_constant__ TopkOutputsAt<Place> out, std::int64_t rows) {
  constexpr bool kPacks = std::is_same_v<Place, FlatPlace>;
  using Held = HeldRow<In, Lanes, N, kPacks>;
  __shared__ typename Held::Room rooms[gpu_select::kGateThreads / Lanes];
  await_previous();
  const std::int64_t own =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / Lanes;
  const std::int64_t at = min(own, rows - 1);  // a warp works as a whole
  const SpaceOf<Place>& space = common.space;
  const auto cols = static_cast<int>(space.cols);
  const double temperature = value_for(space, common.temperature, at);
  const float factor = common.factor_for(temperature);
  const void* row = address_of(space, x, at);
  Held held(cols, rooms[threadIdx.x / Lanes]);
  const auto element_of = [&](int c) { return held.at(c); };
  float values[N];
  if constexpr (kPacks) {
    held.load(static_cast<const In*>(row), values);
  } else {
    held.load(row, x.dtype, x.col_stride, values);
  }
  const auto k = static_cast<int>(out.k);
  const Upper upper = held.upper(values, k);
  State<float> state = held.state(values, upper.largest, factor);
  if (!(temperature > 0 && isfinite(temperature))) state = broken_state();
  const float lse = logsumexp(state);
  const bool broken = lse != lse;
  const int lane = held.lane();
  const bool exists = at == own;

  if (out.target) {
    const auto token = read_one<std::int64_t>(address_of(space, out.target, at), out.target.dtype);
    Target target;
    if (token >= 0 && token < cols) {
      target = {static_cast<int>(token), element_of(static_cast<int>(token))};
    }
    unsigned before = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int c = held.column(j);
      before += c < cols && target.follows(values[j], c) ? 1 : 0;
    }
    before = group_fold(before, Add<unsigned>(), Lanes);
    if (lane == 0 && exists) {
      const bool none = broken || target.index < 0;
      RowOut(space, out.target_logprob, at)
          .put(0, none ? std::numeric_limits<float>::quiet_NaN()
                       : log_probability(state, target.x * factor));
      RowOut(space, out.target_rank, at).put(0, none ? -1LL : static_cast<long long>(before));
    }
  }
  if (lane == 0 && exists) RowOut(space, out.lse, at).put(0, lse);

  // −inf is an element like others, after all of them, by its index; a NaN's row has no answer.
  const auto key = held.largest(values, upper.limit, k, element_of);
  const int index = Held::Keys::index(key);
  int to = lane;
  if (!out.sorted) {  // the place that its index has among those of all
    to = 0;
    for (int i = 0; i < k; ++i) to += __shfl_sync(kAllLanes, index, i, Lanes) < index ? 1 : 0;
  }
  const bool writes = lane < k;
  const float value =
      value_for_lane<Lanes>(out.values, state, Held::Keys::value(key) * factor, writes);
  if (!writes || !exists) return;
  RowOut(space, out.out, at).put(broken ? lane : to, broken ? lse : value);
  RowOut(space, out.indices, at)
      .put(broken ? lane : to, broken ? -1LL : static_cast<long long>(index));
}

template <class In, class Place>
Status run_warp(const RowArgs& args, const gpu_select::LanesLaunch& lanes) {
  return with_held(lanes.row_threads, args.space.cols, [&]<int Lanes, int N>() {
    return launch(config_of(args, lanes), "gpu_warp", warp_rows<In, Lanes, N, Place>,
                  place_of<Place>(args.logits.x), common_of<Place>(args, temperature_of(args)),
                  outputs_of<Place>(args), args.space.rows);
  });
}

}  // namespace

Status gpu_warp(const RowArgs& args, const gpu_select::LanesLaunch& lanes) {
  if (!in_packs(args.space, args.logits.x)) return run_warp<float, Operand>(args, lanes);
  return with_stored(args,
                     [&]<class In>(Type<In>) { return run_warp<In, FlatPlace>(args, lanes); });
}

}  // namespace onepass::ops::select
