// gate/gpu_warp: the experts of a token, by eight lanes or a warp.
//
// Idea    a row in the registers of a few lanes, as 32 or 64 lists. The largest of each make a
//         limit that at least K experts reach, and seldom many more; an expert's place is how many
//         of these are before it.
// Versus  gpu_block: no block, no barrier; four rows of a warp in the same instructions.
// Bytes   scores once, past L1; an element is found by its number in shared memory.
// Limits  up to 1024 experts, K up to 32; f32, f16, bf16; any stride.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/select/args.hpp"
#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/held_row.cuh"
#include "ops/select/gpu/launch.cuh"
#include "ops/select/gpu/plan.hpp"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

// Where scores lie and what is selected goes. As in the usual call: in packs, at one stride,
// and side by side.
struct DensePlaces {
  const std::byte* x;
  std::int64_t row_bytes;
  void* weights;
  void* experts;
  DType logit, weight, expert;  // f32, f16, bf16; i32, i64

  template <class Held, int N>
  __device__ void load(Held& held, std::int64_t row, float (&z)[N]) const {
    const std::byte* from = x + row * row_bytes;
    if constexpr (Held::kAny) {
      held.load(from, logit, 1, z);
    } else {
      held.load(reinterpret_cast<const typename Held::Element*>(from), z);
    }
  }
  __device__ void put(std::int64_t row, int k, int i, float selected, int which) const {
    const std::int64_t at = row * k + i;
    if (weight == DType::f32) {
      static_cast<float*>(weights)[at] = selected;
    } else {
      static_cast<std::uint16_t*>(weights)[at] =
          weight == DType::bf16 ? narrow<BF16>(selected).bits : narrow<F16>(selected).bits;
    }
    if (expert == DType::i32) {
      static_cast<std::int32_t*>(experts)[at] = which;
    } else {
      static_cast<std::int64_t*>(experts)[at] = which;
    }
  }
};

// Anywhere, of any type.
struct AnyPlaces {
  RowSpace space;
  Operand x, weights, experts;

  template <class Held, int N>
  __device__ void load(Held& held, std::int64_t row, float (&z)[N]) const {
    held.load(address_of(space, x, row), x.dtype, x.col_stride, z);
  }
  __device__ void put(std::int64_t row, int, int i, float selected, int which) const {
    RowOut(space, weights, row).put(i, selected);
    RowOut(space, experts, row).put(i, static_cast<long long>(which));
  }
};

bool side_by_side(const RowSpace& space, const Operand& out, std::int64_t k) {
  return (out.col_stride == 1 || k == 1) && (space.rows == 1 || out.row_strides[0] == k);
}

bool dense(const RowArgs& args) {
  const Select& select = *args.select;
  return in_packs(args.space, args.logits.x) && side_by_side(args.space, args.out, select.k) &&
         side_by_side(args.space, select.indices, select.k) && args.out.dtype != DType::f64;
}

template <class Places>
Places places_of(const RowArgs& args) {
  const Operand& x = args.logits.x;
  const Operand& experts = args.select->indices;
  if constexpr (std::is_same_v<Places, AnyPlaces>) {
    return {args.space, x, args.out, experts};
  } else {
    const FlatPlace rows = place_of<FlatPlace>(x);
    return {rows.data, rows.row_bytes, args.out.data, experts.data,
            x.dtype,   args.out.dtype, experts.dtype};
  }
}

template <class Places>
struct GateArgs {
  std::int64_t rows;
  int cols, k;
  Places places;
  bool soft, renormalize;
  float scale;
  FlatPlace bias;  // one an expert
};

template <class Places>
GateArgs<Places> gate_args(const RowArgs& args) {
  const Select& select = *args.select;
  return {.rows = args.space.rows,
          .cols = static_cast<int>(args.space.cols),
          .k = static_cast<int>(select.k),
          .places = places_of<Places>(args),
          .soft = select.score == GateScore::softmax,
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

// With eight lanes per row registers are worth more than a third block: there are seldom as many.
constexpr int blocks_at_once(int lanes) { return lanes == 8 ? 2 : gpu_select::kGateBlocks; }

// What a kernel is compiled for: one score, experts selected by it; or any score, with a
// bias or without.
enum class Gate { soft, sigmoid, any };

// Lanes of a warp have a row, N experts each. Whole: there are as many experts as lanes can have.
template <class In, int Lanes, int N, class Places, Gate Kind, bool Whole>
__global__ void __launch_bounds__(gpu_select::kGateThreads, blocks_at_once(Lanes))
    gate_warp_rows(const __grid_constant__ GateArgs<Places> args) {
  constexpr bool kAny = Kind == Gate::any;
  constexpr int kRows = gpu_select::kGateThreads / Lanes;
  using Held = HeldRow<In, Lanes, N, !kAny>;
  const bool soft = kAny ? args.soft : Kind == Gate::soft;
  const bool biased = kAny && args.bias;
  __shared__ typename Held::Room rooms[kRows];
  await_previous();
  const auto own = static_cast<int>(threadIdx.x / Lanes);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kRows + own;
  const std::int64_t row = min(at, args.rows - 1);  // a warp works as a whole
  Held held(Whole ? Lanes * N : args.cols, rooms[own]);
  float z[N];
  args.places.load(held, row, z);

  Upper upper = held.upper(z, args.k);
  bool broken = upper.largest != upper.largest;
  State<float> whole{};
  if (soft) {
    whole = held.state(z, upper.largest, 1.0F);
    broken = whole.d != whole.d;
  }
  const float share = whole.d == 0 ? 0 : reciprocal(whole.d);
  const auto score = [&](float value) {
    return soft ? exponential(value - shift(whole.m)) * share
                : reciprocal(1.0F + exponential(-value));
  };
  // Of neighbours from expert e on; calls, not inlined, for all types that a bias may have.
  const auto bias_of = [&]<int Count>(int e) {
    const int left = min(args.cols - e, Count);
    return elements_at<float, Count>(args.bias.data, args.bias.dtype, e, args.bias.col_stride,
                                     left > 0 ? (1U << left) - 1 : 0);
  };
  const auto chosen_by = [&](float value, int e) {
    return biased ? score(value) + bias_of.template operator()<1>(e).z[0] : value;
  };
  if (biased) {
    constexpr int kFour = 4;
#pragma unroll
    for (int j = 0; j < N; j += kFour) {
      const Values<float, kFour> bias = bias_of.template operator()<kFour>(held.column(j));
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        if (held.column(j + k) < args.cols) z[j + k] = score(z[j + k]) + bias.z[k];
      }
    }
    upper = held.upper(z, args.k);
    broken = broken || upper.largest != upper.largest;
  }
  const auto key =
      held.largest(z, upper.limit, args.k, [&](int e) { return chosen_by(held.at(e), e); });

  const int lane = held.lane();
  const bool writes = lane < args.k;
  const int expert = Held::Keys::index(key);
  float kept = 0;
  if (writes && !broken) kept = score(biased ? held.at(expert) : Held::Keys::value(key));
  if (args.renormalize) {
    const float sum = group_fold(kept, Add<float>(), Lanes);
    if (sum != 0) kept /= sum;  // no factor: the reciprocal of a subnormal sum is inf
  }
  if (!writes || at != row) return;
  args.places.put(row, args.k, lane,
                  broken ? std::numeric_limits<float>::quiet_NaN() : kept * args.scale,
                  broken ? -1 : expert);
}

template <class Places, class Kernel>
Status start(const RowArgs& args, const gpu_select::LanesLaunch& lanes, Kernel kernel) {
  return launch(config_of(args, lanes), "gate", kernel, gate_args<Places>(args));
}

// One kernel for all types: where there is a bias, experts are selected by floats anyway.
template <class Places>
Status run_any(const RowArgs& args, const gpu_select::LanesLaunch& lanes) {
  return with_held(lanes.row_threads, args.space.cols, [&]<int Lanes, int N>() {
    return start<Places>(args, lanes, gate_warp_rows<float, Lanes, N, Places, Gate::any, false>);
  });
}

template <class In>
Status run_usual(const RowArgs& args, const gpu_select::LanesLaunch& lanes) {
  return with_held(lanes.row_threads, args.space.cols, [&]<int Lanes, int N>() {
    const auto run = [&](auto kernel) { return start<DensePlaces>(args, lanes, kernel); };
    if (args.select->score == GateScore::sigmoid) {
      return run(gate_warp_rows<In, Lanes, N, DensePlaces, Gate::sigmoid, false>);
    }
    if constexpr (Lanes == 8) {
      if (args.space.cols == Lanes * N) {
        return run(gate_warp_rows<In, Lanes, N, DensePlaces, Gate::soft, true>);
      }
    }
    return run(gate_warp_rows<In, Lanes, N, DensePlaces, Gate::soft, false>);
  });
}

}  // namespace

Status gpu_gate_warp(const RowArgs& args, const gpu_select::LanesLaunch& lanes) {
  if (!dense(args)) return run_any<AnyPlaces>(args, lanes);
  if (args.select->bias) return run_any<DensePlaces>(args, lanes);
  return with_stored(args, [&]<class In>(Type<In>) { return run_usual<In>(args, lanes); });
}

}  // namespace onepass::ops::select
