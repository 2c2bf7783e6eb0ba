// topk/20_gate: the experts of a token, a warp a row.
//
// Idea    a lane has a run of neighbouring experts. The K largest come one after the other: a reduction of the
//         warp finds the largest of the lanes' own, the first lane that has it is the one with the lower expert,
//         and it alone looks for its next.
// Versus  10_choose: no shared memory, no barrier, no sort.
// Bytes   scores once.
// Limits  up to 1024 experts, K up to 32; f32, f16, bf16; any stride.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "dispatch/gpu_choose.hpp"
#include "merge/warp.cuh"
#include "ops/row/launch.cuh"
#include "ops/row/logits.cuh"
#include "ops/topk/key.cuh"
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

constexpr unsigned kAll = 0xFFFFFFFFU;

// N neighbours of a row, the last of them past its end, as what the whole row's score is made of.
template <class In, int N>
__device__ inline void load_run(const In* x, std::int64_t stride, int first, int count,
                                float (&z)[N]) {
  constexpr int kLanes = Pack<In>::kLanes;
  if (stride == 1 && count == N && N % kLanes == 0 &&
      reinterpret_cast<std::uintptr_t>(x + first) % 16 == 0) {
#pragma unroll
    for (int p = 0; p < N / kLanes; ++p) {
      const Pack<In> pack = reinterpret_cast<const Pack<In>*>(x + first)[p];
#pragma unroll
      for (int k = 0; k < kLanes; ++k) z[p * kLanes + k] = widen(element<In>(pack.word, k));
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    z[j] = j < count ? widen(x[(first + j) * stride]) : minus_infinity<float>();
  }
}

// N experts a lane. With a bias what is chosen by is not the score itself.
template <class In, int N, bool Biased>
__global__ __launch_bounds__(gpu_choose::kGateThreads, N <= 8 ? 8 : 1) void gate_rows(
    const __grid_constant__ GateArgs args) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (row >= args.space.rows) return;
  const auto experts = static_cast<int>(args.space.cols);
  const int first = lane * N;
  const int count = max(0, min(N, experts - first));
  float z[N];
  load_run(static_cast<const In*>(row_data(args.space, args.x, row)), args.x.col_stride, first,
           count, z);
  float m = minus_infinity<float>();
  bool broken = false;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    broken = broken || z[j] != z[j];
    m = fmaxf(m, z[j]);
  }
  State<float> whole = identity<float>();
  if (args.soft) {
    // −0 is no maximum of its own here: the largest comes by its word.
    whole.m = value_of_word(__reduce_max_sync(kAll, ordered(m)));
    const float s = shift(whole.m);
#pragma unroll
    for (int j = 0; j < N; ++j) whole.d += exponential(z[j] - s);
    whole.d = warp_fold(whole.d, Add<float>());
    broken = broken || whole.d != whole.d;
  }
  const auto score = [&](float value) {
    return args.soft ? weight(whole, value) : 1.0F / (1.0F + exponential(-value));
  };
  // What is chosen by, as words; 0 is past all of them.
  unsigned word[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    float by = z[j];
    if (Biased && j < count) {
      by = score(z[j]) + element_at<float>(args.bias.data, args.bias.dtype,
                                           (first + j) * args.bias.col_stride);
      broken = broken || by != by;
    }
    word[j] = j < count ? ordered(by) : 0;
  }
  broken = __any_sync(kAll, broken);
  unsigned mine = 0;  // the largest of the lane's that is left, and which
  int which = 0;
  const auto look = [&] {
    mine = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (word[j] > mine) {
        mine = word[j];
        which = j;
      }
    }
  };
  look();
  float kept = 0;  // of lane i: the i-th expert's score, and the expert
  int expert = -1;
  for (int i = 0; i < args.k; ++i) {
    const unsigned largest = __reduce_max_sync(kAll, mine);
    const int winner = __ffs(static_cast<int>(__ballot_sync(kAll, mine == largest))) - 1;
    const int e = __shfl_sync(kAll, first + which, winner);
    float by = value_of_word(largest);
    if (Biased) {
      float own = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) own = j == which ? z[j] : own;
      by = __shfl_sync(kAll, own, winner);
    }
    if (lane == i) {
      kept = by;
      expert = e;
    }
    if (lane == winner) {
#pragma unroll
      for (int j = 0; j < N; ++j) word[j] = j == which ? 0 : word[j];
      look();
    }
  }
  const bool writes = lane < args.k;
  kept = writes ? score(kept) : 0;
  float factor = args.scale;
  if (args.renormalize) {
    const float sum = warp_fold(kept, Add<float>());
    if (sum != 0) factor /= sum;
  }
  if (!writes) return;
  write(row_data(args.space, args.weights, row), args.weights.dtype, lane * args.weights.col_stride,
        broken ? std::numeric_limits<float>::quiet_NaN() : kept * factor);
  write(row_data(args.space, args.experts, row), args.experts.dtype, lane * args.experts.col_stride,
        static_cast<long long>(broken ? -1 : expert));
}

template <class In>
Status run_gate(const GateArgs& args, const Plan& plan, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(plan.blocks);
  config.blockDim = static_cast<unsigned>(plan.threads);
  config.stream = static_cast<cudaStream_t>(stream);
  const auto launch = [&]<int N>() {
    if (args.bias) {
      cudaLaunchKernelEx(&config, gate_rows<In, N, true>, args);
    } else {
      cudaLaunchKernelEx(&config, gate_rows<In, N, false>, args);
    }
    return launch_status(plan.variant);
  };
  if (args.space.cols <= 2 * kWarp) return launch.template operator()<2>();
  if (args.space.cols <= 8 * kWarp) return launch.template operator()<8>();
  if (args.space.cols <= 18 * kWarp) return launch.template operator()<18>();
  return launch.template operator()<32>();
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
