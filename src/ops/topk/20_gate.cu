// topk/20_gate: the experts of a token, a warp a row.
//
// Idea    every lane has its largest score; the K-th of these is a limit that at least K experts reach, and
//         seldom many more. These go to a lane each, and an expert's place is how many are before it.
// Versus  10_choose: no block, no barrier.
// Bytes   scores once.
// Limits  up to 1024 experts, K up to 32; f32, f16, bf16; any stride.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "dispatch/gpu_choose.hpp"
#include "merge/warp.cuh"
#include "ops/row/logits.cuh"
#include "ops/topk/launch.cuh"
#include "ops/topk/select.hpp"
#include "ops/topk/variants.hpp"
#include "ops/topk/warp_keys.cuh"

namespace onepass::ops::topk {
namespace {

struct GateArgs {
  RowSpace space;
  Operand x, bias, weights, experts;
  int k;
  bool soft, renormalize;
  float scale;
};

// The usual call: rows at one distance from each other, elements side by side, weights of the scores' dtype, no bias.
bool is_flat(const GateArgs& a) {
  const auto dense = [](const Operand& o) { return o.col_stride == 1; };
  return a.space.rank <= 1 && dense(a.x) && dense(a.weights) && dense(a.experts) &&
         a.weights.dtype == a.x.dtype && !a.bias;
}

template <class T>
__device__ inline T* flat_row(const Operand& operand, std::int64_t row) {
  return static_cast<T*>(operand.data) + row * operand.row_strides[0];
}

// N experts a lane. With a bias what is chosen by is not the score itself.
template <class In, int N, bool Biased, bool Flat>
__global__ __launch_bounds__(gpu_choose::kGateThreads,
                             N <= 8 ? 8 : 1) void gate_rows(const __grid_constant__ GateArgs args) {
  __shared__ Key slots[gpu_choose::kGateThreads / kWarp][2 * kWarp];
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (row >= args.space.rows) return;
  const auto experts = static_cast<int>(args.space.cols);
  const auto* x = Flat ? flat_row<const In>(args.x, row)
                       : static_cast<const In*>(row_data(args.space, args.x, row));
  const std::int64_t stride = Flat ? 1 : args.x.col_stride;
  In stored[N];
  float z[N];
  float m = minus_infinity<float>();
  bool broken = false;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int e = lane + j * kWarp;
    stored[j] = e < experts ? x[e * stride] : In{};
    z[j] = e < experts ? widen(stored[j]) : minus_infinity<float>();
  }
#pragma unroll
  for (int j = 0; j < N; ++j) m = larger_or_nan(m, z[j]);
  broken = __any_sync(kAllLanes, m != m);
  State<float> whole = identity<float>();
  if (args.soft) {
    whole.m = value_of_word(__reduce_max_sync(kAllLanes, ordered(m)));
    const float s = shift(whole.m);
#pragma unroll
    for (int j = 0; j < N; ++j) whole.d += exponential(z[j] - s);
    whole.d = warp_fold(whole.d, Add<float>());
    broken = broken || whole.d != whole.d;
  }
  const auto score = [&](float value) {
    return args.soft ? weight(whole, value) : 1.0F / (1.0F + exponential(-value));
  };
  const bool writes = lane < args.k;
  int expert;
  float kept;
  unsigned word[N];  // what is chosen by; 0 is below all of them
  if constexpr (sizeof(In) == 2 && !Biased && N <= 8) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int e = lane + j * kWarp;
      const unsigned key = packed(stored[j], e);
      word[j] = e < experts ? key : 0;
    }
    const unsigned chosen = largest_words(word, args.k);
    expert = static_cast<int>(packed_index(chosen));
    kept = widen(packed_value<In>(chosen));
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int e = lane + j * kWarp;
      float by = z[j];
      if (Biased && e < experts) {
        by = score(z[j]) +
             element_at<float>(args.bias.data, args.bias.dtype, e * args.bias.col_stride);
        broken = broken || by != by;
      }
      word[j] = e < experts ? ordered(by) : 0;
    }
    if (Biased) broken = __any_sync(kAllLanes, broken);
    const Key key = largest_keys(word, args.k, slots[threadIdx.x / kWarp]);
    expert = static_cast<int>(index_of(key));
    kept = value_of(key);
    if (Biased && writes && !broken) kept = widen(x[expert * stride]);
  }
  kept = writes ? score(kept) : 0;
  float factor = args.scale;
  if (args.renormalize) {
    const float sum = warp_fold(kept, Add<float>());
    if (sum != 0) factor /= sum;
  }
  if (!writes) return;
  if constexpr (Flat) {
    flat_row<In>(args.weights, row)[lane] =
        narrow<In>(broken ? std::numeric_limits<float>::quiet_NaN() : kept * factor);
    if (args.experts.dtype == DType::i64) {
      flat_row<long long>(args.experts, row)[lane] = broken ? -1 : expert;
    } else {
      flat_row<int>(args.experts, row)[lane] = broken ? -1 : expert;
    }
    return;
  }
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
    if (is_flat(args)) {
      cudaLaunchKernelEx(&config, gate_rows<In, N, false, true>, args);
    } else if (args.bias) {
      cudaLaunchKernelEx(&config, gate_rows<In, N, true, false>, args);
    } else {
      cudaLaunchKernelEx(&config, gate_rows<In, N, false, false>, args);
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
  return with_stored(args,
                     [&]<class In>(Type<In>) { return run_gate<In>(gate, plan, args.stream); });
}

}  // namespace onepass::ops::topk
