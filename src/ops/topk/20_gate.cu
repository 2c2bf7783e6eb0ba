// topk/20_gate: the experts of a token, a warp a row.
//
// Idea    a row of scores is a few values a lane. The K largest come one after the other, each by a fold over
//         the warp of (key, expert) that prefers the lower expert; lane i keeps the i-th.
// Versus  10_choose: no shared memory, no sort.
// Bytes   scores once.
// Limits  up to 1024 experts, K up to 32; f32, f16, bf16; any stride.
// Proof   `onepass verify`; numbers: results/.

#include "merge/warp.cuh"
#include "ops/row/launch.cuh"
#include "ops/row/logits.cuh"
#include "ops/topk/select.hpp"
#include "ops/topk/variants.hpp"

namespace onepass::ops::topk {
namespace {

struct GateArgs {
  RowSpace space;
  Operand x, bias, weights, experts;
  int k;
  bool soft, renormalize;
  float scale;
};

constexpr int kGateThreads = 256;

// An expert by its key; of equal keys the lower expert.
struct Choice {
  float key;
  int expert;
};

__device__ inline bool before(const Choice& a, const Choice& b) {
  return a.key > b.key || (a.key == b.key && a.expert < b.expert);
}

__device__ inline Choice best_of_warp(Choice mine) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    const Choice other{__shfl_xor_sync(0xFFFFFFFFU, mine.key, apart),
                       __shfl_xor_sync(0xFFFFFFFFU, mine.expert, apart)};
    if (before(other, mine)) mine = other;
  }
  return mine;
}

// N scores a lane: lane, lane + 32, …
template <class In, int N>
__global__ __launch_bounds__(kGateThreads) void gate_rows(const __grid_constant__ GateArgs args) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (row >= args.space.rows) return;
  const auto experts = static_cast<int>(args.space.cols);
  const auto* x = static_cast<const In*>(row_data(args.space, args.x, row));
  float z[N];
  float m = minus_infinity<float>();
  bool broken = false;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int e = lane + j * kWarp;
    z[j] = e < experts ? widen(x[e * args.x.col_stride]) : minus_infinity<float>();
    broken = broken || z[j] != z[j];
    m = fmaxf(m, z[j]);
  }
  const State<float> whole = [&] {
    State<float> mine{m, 0};
    const float s = shift(m);
#pragma unroll
    for (int j = 0; j < N; ++j) mine.d += exponential(z[j] - s);
    return warp_fold(mine, Merge<float>());
  }();
  broken = broken || (args.soft && whole.d != whole.d);
  const auto score = [&](float value) {
    if (args.soft) return weight(whole, value);
    return 1.0F / (1.0F + exponential(-value));
  };
  // From here on z is what is chosen by.
  float of[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int e = lane + j * kWarp;
    of[j] = score(z[j]);
    if (!args.bias || e >= experts) continue;
    z[j] = of[j] + element_at<float>(args.bias.data, args.bias.dtype, e * args.bias.col_stride);
    broken = broken || z[j] != z[j];
  }
  broken = __any_sync(0xFFFFFFFFU, broken);
  unsigned taken = 0;  // bit j: z[j]
  Choice kept{0, -1};  // of lane i: the i-th expert, and its weight
  for (int i = 0; i < args.k; ++i) {
    Choice mine{minus_infinity<float>(), 1 << 30};
    float weight_of_mine = 0;
    int which = -1;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int e = lane + j * kWarp;
      if (e >= experts || (taken >> j & 1) != 0) continue;
      if (which < 0 || z[j] > mine.key) {
        mine = {z[j], e};
        weight_of_mine = of[j];
        which = j;
      }
    }
    const Choice best = best_of_warp(mine);
    const bool is_mine = which >= 0 && best.expert == mine.expert;
    if (is_mine) taken |= 1U << which;
    const float w = __shfl_sync(0xFFFFFFFFU, weight_of_mine, best.expert % kWarp);
    if (lane == i) kept = {w, best.expert};
  }
  const float sum = warp_fold(lane < args.k ? kept.key : 0.0F, Add<float>());
  const float factor = args.scale / (args.renormalize && sum != 0 ? sum : 1.0F);
  if (lane >= args.k) return;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  write(row_data(args.space, args.weights, row), args.weights.dtype, lane * args.weights.col_stride,
        broken ? nan : kept.key * factor);
  write(row_data(args.space, args.experts, row), args.experts.dtype, lane * args.experts.col_stride,
        static_cast<long long>(broken ? -1 : kept.expert));
}

template <class In>
Status run_gate(const GateArgs& args, const Plan& plan, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(plan.blocks);
  config.blockDim = static_cast<unsigned>(plan.threads);
  config.stream = static_cast<cudaStream_t>(stream);
  if (args.space.cols <= 8 * kWarp) {
    cudaLaunchKernelEx(&config, gate_rows<In, 8>, args);
  } else if (args.space.cols <= 16 * kWarp) {
    cudaLaunchKernelEx(&config, gate_rows<In, 16>, args);
  } else {
    cudaLaunchKernelEx(&config, gate_rows<In, 32>, args);
  }
  return launch_status(plan.variant);
}

}  // namespace

Status gpu_gate(const RowArgs& args, const Plan& plan) {
  const Select& select = *args.select;
  const GateArgs gate{.space = args.space,
                      .x = args.logits.x,
                      .bias = select.bias,
                      .weights = args.out,
                      .experts = select.indices,
                      .k = static_cast<int>(select.k),
                      .soft = select.score == GateScore::softmax,
                      .renormalize = select.renormalize,
                      .scale = static_cast<float>(select.scale)};
  switch (args.logits.x.dtype) {
    case DType::f16: return run_gate<F16>(gate, plan, args.stream);
    case DType::bf16: return run_gate<BF16>(gate, plan, args.stream);
    default: return run_gate<float>(gate, plan, args.stream);
  }
}

}  // namespace onepass::ops::topk
