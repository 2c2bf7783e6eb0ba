// topk/13_warp: short rows, a warp each.
//
// Idea    the row in the registers of a warp; what a gate does, with a State for all and a target's place.
// Versus  10_choose: no block, no barrier, no shared memory but 64 keys.
// Bytes   x once.
// Limits  up to 1024 columns, K up to 32; f32, f16, bf16; any stride, a positive scale and a temperature.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/topk/answer.cuh"
#include "ops/topk/launch.cuh"
#include "ops/topk/variants.hpp"
#include "ops/topk/warp_keys.cuh"

namespace onepass::ops::topk {
namespace {

// What lane i writes for the i-th of the chosen.
__device__ inline float value_for_lane(const TopkOutputs& out, const State<float>& state, float z,
                                       bool writes) {
  switch (out.values) {
    case TopkValues::logit: return z;
    case TopkValues::log_probability: return log_probability(state, z);
    case TopkValues::renormalized: {
      const float own = writes ? weight(state, z) : 0;
      const float sum = warp_fold(own, Add<float>());
      return sum == 0 ? 0 : own / sum;
    }
    default: return weight(state, z);
  }
}

// N columns a lane.
template <class In, int N>
__global__ __launch_bounds__(gpu_choose::kGateThreads, N <= 8 ? 8 : 2) void warp_rows(
    const __grid_constant__ Operand x, const __grid_constant__ Common common,
    const __grid_constant__ TopkOutputs out) {
  __shared__ Key slots[gpu_choose::kGateThreads / kWarp][2 * kWarp];
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const RowSpace& space = common.space;
  if (at >= space.rows) return;
  const auto cols = static_cast<int>(space.cols);
  const double temperature = value_for(space, common.temperature, at);
  const float factor = static_cast<float>(common.scale) / static_cast<float>(temperature);
  const auto* row = static_cast<const In*>(address_of(space, x, at));
  const auto element = [&](int c) { return widen(row[c * x.col_stride]); };
  float held[N];
  float m = minus_infinity<float>();
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int c = lane + j * kWarp;
    held[j] = c < cols ? element(c) : minus_infinity<float>();
  }
#pragma unroll
  for (int j = 0; j < N; ++j) m = larger_or_nan(m, held[j]);
  State<float> state{m * factor, 0};
#pragma unroll
  for (int j = 0; j < N; ++j) state.d += power_of_two((held[j] - shift(m)) * (factor * kLog2E));
  state = warp_fold(state, Merge<float>());
  if (!(temperature > 0 && isfinite(temperature))) state = broken_state();
  const float lse = logsumexp(state);
  const bool broken = lse != lse;

  if (out.target) {
    const auto token = read<std::int64_t>(address_of(space, out.target, at), out.target.dtype, 0);
    Target target;
    if (token >= 0 && token < cols) {
      target = {static_cast<int>(token), element(static_cast<int>(token))};
    }
    unsigned before = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int c = lane + j * kWarp;
      before += c < cols && target.follows(held[j], c) ? 1 : 0;
    }
    before = warp_fold(before, Add<unsigned>());
    if (lane == 0) {
      const bool none = broken || target.index < 0;
      RowOut(space, out.target_logprob, at)
          .put(0, none ? std::numeric_limits<float>::quiet_NaN()
                       : log_probability(state, target.x * factor));
      RowOut(space, out.target_rank, at).put(0, none ? -1LL : static_cast<long long>(before));
    }
  }
  if (lane == 0) RowOut(space, out.lse, at).put(0, lse);

  // −inf is an element like others, after all of them, by its index; a NaN's row has no answer.
  unsigned word[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const bool has = lane + j * kWarp < cols;
    word[j] = !has ? 0 : held[j] == held[j] ? ordered(held[j]) : 1;
  }
  const auto k = static_cast<int>(out.k);
  const Key key = largest_keys(word, k, slots[threadIdx.x / kWarp]);
  const bool writes = lane < k;
  const auto index = static_cast<int>(index_of(key));
  int to = lane;
  if (!out.sorted) {  // the place that its index has among those of all
    to = 0;
    for (int i = 0; i < k; ++i) to += __shfl_sync(kAllLanes, index, i) < index ? 1 : 0;
  }
  const float value = value_for_lane(out, state, value_of(key) * factor, writes);
  if (!writes) return;
  RowOut(space, out.out, at).put(broken ? lane : to, broken ? lse : value);
  RowOut(space, out.indices, at)
      .put(broken ? lane : to, broken ? -1LL : static_cast<long long>(index));
}

template <class In>
Status run_warp(const RowArgs& args, const Plan& plan) {
  const cudaLaunchConfig_t config = config_of(plan, args);
  const Common common = common_of(args, plan, temperature_of(args));
  const TopkOutputs out = outputs_of(args);
  const auto launch = [&]<int N>() {
    cudaLaunchKernelEx(&config, warp_rows<In, N>, args.logits.x, common, out);
    return launch_status(plan.variant);
  };
  if (args.space.cols <= 2 * kWarp) return launch.template operator()<2>();
  if (args.space.cols <= 8 * kWarp) return launch.template operator()<8>();
  return launch.template operator()<32>();
}

}  // namespace

Status gpu_warp(const RowArgs& args, const Plan& plan) {
  switch (args.logits.x.dtype) {
    case DType::f16: return run_warp<F16>(args, plan);
    case DType::bf16: return run_warp<BF16>(args, plan);
    default: return run_warp<float>(args, plan);
  }
}

}  // namespace onepass::ops::topk
