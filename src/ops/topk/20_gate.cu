// topk/20_gate: the experts of a token, by eight lanes or a warp.
//
// Idea    a row in the registers of a few lanes. The largest of each 32nd part of it make a limit that at least K
//         experts reach, and seldom many more; an expert's place is how many of these are before it.
// Versus  10_choose: no block, no barrier; four rows of a warp in the same instructions.
// Bytes   scores once.
// Limits  up to 1024 experts, K up to 32; f32, f16, bf16; any stride.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "dispatch/gpu_choose.hpp"
#include "ops/row/logits.cuh"
#include "ops/topk/held_row.cuh"
#include "ops/topk/launch.cuh"
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

// The usual call: rows at one distance from each other, in whole packs, weights of the scores' dtype, no bias.
bool is_packed(const GateArgs& a) {
  const auto dense = [](const Operand& o) { return o.col_stride == 1; };
  const int lanes = pack_lanes(a.x.dtype);
  return a.space.rank <= 1 && dense(a.x) && dense(a.weights) && dense(a.experts) &&
         a.weights.dtype == a.x.dtype && !a.bias && a.space.cols % lanes == 0 &&
         (a.space.rows == 1 || a.x.row_strides[0] % lanes == 0) &&
         reinterpret_cast<std::uintptr_t>(a.x.data) % kPackBytes == 0;
}

template <class T>
__device__ inline T* flat_row(const Operand& operand, std::int64_t row) {
  return static_cast<T*>(operand.data) + row * operand.row_strides[0];
}

// Lanes of a warp have a row, N experts each. With a bias what is chosen by is not the score itself.
template <class In, int Lanes, int N, bool Packed, bool Biased>
__global__ __launch_bounds__(gpu_choose::kGateThreads, gpu_choose::kGateBlocks) void gate_rows(
    const __grid_constant__ GateArgs args) {
  __shared__ KeySlots<Lanes> slots[gpu_choose::kGateThreads / Lanes];
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / Lanes;
  const std::int64_t row = min(at, args.space.rows - 1);  // a warp works as a whole
  const auto* x = Packed ? flat_row<const In>(args.x, row)
                         : static_cast<const In*>(row_data(args.space, args.x, row));
  const std::int64_t stride = Packed ? 1 : args.x.col_stride;
  const HeldRow<Lanes, N, Packed ? Pack<In>::kLanes : 1> held(static_cast<int>(args.space.cols));
  float z[N];
  held.load(x, stride, z);
  const State<float> whole = held.state(z, 1.0F);
  const auto score = [&](float value) {
    return args.soft ? weight(whole, value) : 1.0F / (1.0F + exponential(-value));
  };
  const auto chosen_by = [&](int e, float value) {
    if constexpr (!Biased) return value;
    return score(value) +
           element_at<float>(args.bias.data, args.bias.dtype, e * args.bias.col_stride);
  };
  bool broken = args.soft ? whole.d != whole.d : whole.m != whole.m;
  if constexpr (Biased) {
    bool odd = false;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (held.column(j) >= args.space.cols) continue;
      z[j] = chosen_by(held.column(j), z[j]);
      odd = odd || z[j] != z[j];
    }
    broken = group_fold(broken || odd ? 1 : 0, Add<int>(), Lanes) != 0;
  }
  const Key key = held.largest(z, args.k, slots[threadIdx.x / Lanes],
                               [&](int e) { return chosen_by(e, widen(x[e * stride])); });
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
  const float answer = broken ? std::numeric_limits<float>::quiet_NaN() : kept * factor;
  const long long which = broken ? -1 : expert;
  if constexpr (Packed) {
    flat_row<In>(args.weights, row)[lane] = narrow<In>(answer);
    if (args.experts.dtype == DType::i64) {
      flat_row<long long>(args.experts, row)[lane] = which;
    } else {
      flat_row<int>(args.experts, row)[lane] = static_cast<int>(which);
    }
  } else {
    write(row_data(args.space, args.weights, row), args.weights.dtype,
          lane * args.weights.col_stride, answer);
    write(row_data(args.space, args.experts, row), args.experts.dtype,
          lane * args.experts.col_stride, which);
  }
}

template <class In>
Status run_gate(const GateArgs& args, const Plan& plan, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(plan.blocks);
  config.blockDim = static_cast<unsigned>(plan.threads);
  config.stream = static_cast<cudaStream_t>(stream);
  return with_held(plan.row_threads, args.space.cols, [&]<int Lanes, int N>() {
    if (is_packed(args)) {
      cudaLaunchKernelEx(&config, gate_rows<In, Lanes, N, true, false>, args);
    } else if (args.bias) {
      cudaLaunchKernelEx(&config, gate_rows<In, Lanes, N, false, true>, args);
    } else {
      cudaLaunchKernelEx(&config, gate_rows<In, Lanes, N, false, false>, args);
    }
    return launch_status(plan.variant);
  });
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
