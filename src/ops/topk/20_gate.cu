// topk/20_gate: the experts of a token, by eight lanes or a warp.
//
// Idea    a row in the registers of a few lanes, as 32 or 64 lists. The largest of each make a limit that at least K
//         experts reach, and seldom many more; an expert's place is how many of these are before it.
// Versus  10_choose: no block, no barrier; four rows of a warp in the same instructions.
// Bytes   scores once, past L1; whoever needs an element by its number finds it in shared memory.
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
  std::int64_t weight_step, expert_step;  // bytes from a lane's to the next one's
  int k;
  bool renormalize;
  float scale;
  FlatPlace bias;  // one an expert
};

std::int64_t step_of(const Operand& out) {
  return out.col_stride * static_cast<std::int64_t>(size_of(out.dtype));
}

template <class Place>
GateArgs<Place> gate_args(const RowArgs& args) {
  const Select& select = *args.select;
  return {.space = space_of<Place>(args.space),
          .rows = args.space.rows,
          .x = place_of<Place>(args.logits.x),
          .weights = place_of<Place>(args.out),
          .experts = place_of<Place>(select.indices),
          .weight_step = step_of(args.out),
          .expert_step = step_of(select.indices),
          .k = static_cast<int>(select.k),
          .renormalize = select.renormalize,
          .scale = static_cast<float>(select.scale),
          .bias = place_of<FlatPlace>(select.bias)};
}

// Of a number from 1 on.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class Value>
__device__ inline void put(void* to, DType dtype, Value value) {
  with_type_for<Value>(dtype, [&]<class Stored>(Type<Stored>) {
    *static_cast<Stored*>(to) = narrow<Stored>(value);
  });
}

// Lanes of a warp have a row, N experts each. Soft: scores are the softmax's, else sigmoids. Biased: what is chosen by is not
// the score itself. Whole: there are as many experts as lanes can have.
template <class In, int Lanes, int N, class Place, bool Soft, bool Biased, bool Whole>
__global__ __launch_bounds__(gpu_choose::kGateThreads, gpu_choose::kGateBlocks) void gate_rows(
    const __grid_constant__ GateArgs<Place> args) {
  constexpr int kRows = gpu_choose::kGateThreads / Lanes;
  using Held = HeldRow<In, Lanes, N, std::is_same_v<Place, FlatPlace> ? Pack<In>::kLanes : 1>;
  __shared__ typename Held::Room rooms[kRows];
  await_previous();
  const auto own = static_cast<int>(threadIdx.x / Lanes);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kRows + own;
  const std::int64_t row = min(at, args.rows - 1);  // a warp works as a whole
  const Held held(Whole ? Lanes * N : static_cast<int>(args.space.cols), rooms[own]);
  float z[N];
  held.load(static_cast<const In*>(address_of(args.space, args.x, row)),
            Held::kPack > 1 ? 1 : args.x.col_stride, z);
  const int lane = held.lane();
  auto* to_weight = static_cast<std::byte*>(address_of(args.space, args.weights, row)) +
                    lane * args.weight_step;
  auto* to_expert = static_cast<std::byte*>(address_of(args.space, args.experts, row)) +
                    lane * args.expert_step;

  Upper upper = held.upper(z, args.k);
  bool broken = upper.largest != upper.largest;
  State<float> whole{};
  if constexpr (Soft) {
    whole = held.state(z, upper.largest, 1.0F);
    broken = whole.d != whole.d;
  }
  const float share = whole.d == 0 ? 0 : reciprocal(whole.d);
  const auto score = [&](float value) {
    return Soft ? exponential(value - shift(whole.m)) * share
                : reciprocal(1.0F + exponential(-value));
  };
  const auto chosen_by = [&](float value, int e) {
    if constexpr (!Biased) return value;
    return score(value) +
           element_at<float>(args.bias.data, args.bias.dtype, e * args.bias.col_stride);
  };
  if constexpr (Biased) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int e = held.column(j);
      if (e < args.space.cols) z[j] = chosen_by(z[j], e);
    }
    upper = held.upper(z, args.k);
    broken = broken || upper.largest != upper.largest;
  }
  const Key key =
      held.largest(z, upper.limit, args.k, [&](int e) { return chosen_by(held.at(e), e); });

  const bool writes = lane < args.k;
  const auto expert = static_cast<int>(index_of(key));
  float kept = 0;
  if (writes && !broken) kept = score(Biased ? held.at(expert) : value_of(key));
  float factor = args.scale;
  if (args.renormalize) {
    const float sum = group_fold(kept, Add<float>(), Lanes);
    if (sum != 0) factor /= sum;
  }
  if (!writes || at != row) return;
  put(to_weight, args.weights.dtype,
      broken ? std::numeric_limits<float>::quiet_NaN() : kept * factor);
  put(to_expert, args.experts.dtype, broken ? -1LL : static_cast<long long>(expert));
}

template <class Body>
Status with_flag(bool flag, Body body) {
  return flag ? body(std::true_type{}) : body(std::false_type{});
}

template <class In, class Place>
Status run_gate(const RowArgs& args, const Plan& plan) {
  const auto run = [&]<int Lanes, int N>() {
    return with_flag(args.select->score == GateScore::softmax, [&](auto soft) {
      const auto start = [&](auto kernel) {
        return launch(launch_of(args, plan), plan.variant, kernel, gate_args<Place>(args));
      };
      if (args.select->bias) return start(gate_rows<In, Lanes, N, Place, soft, true, false>);
      if constexpr (Lanes == 8 && std::is_same_v<Place, FlatPlace>) {
        if (args.space.cols == Lanes * N) {
          return start(gate_rows<In, Lanes, N, Place, soft, false, true>);
        }
      }
      return start(gate_rows<In, Lanes, N, Place, soft, false, false>);
    });
  };
  return with_held(plan.row_threads, args.space.cols, run);
}

}  // namespace

Status gpu_gate(const RowArgs& args, const Plan& plan) {
  return with_stored(args, [&]<class In>(Type<In>) {
    return in_packs(args.space, args.logits.x) ? run_gate<In, FlatPlace>(args, plan)
                                               : run_gate<In, Operand>(args, plan);
  });
}

}  // namespace onepass::ops::topk
