// The first kernel of attention's backward, for all variants: D = Σ do · o − dlse of each query,
// which is Σ p · dp over its keys, so that dz = p · (dp − D) needs no second pass over them.
// Eight lanes per query; o and do once.

#include "core/cuda/dependent.cuh"
#include "core/divisor.hpp"
#include "merge/operators.hpp"
#include "merge/warp.cuh"
#include "ops/attention/gpu/backward/rows.cuh"
#include "ops/attention/gpu/backward/variants.hpp"
#include "rows/packs.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a row
constexpr int kRows = kThreads / kLanes;

__device__ inline float exponent_of(float lse) {
  if (lse == minus_infinity<float>()) return -lse;
  return lse == -minus_infinity<float>() ? lse - lse : lse;
}

// Σ do · o of a query, by some lanes: each has its part. Where tokens begin at multiples of 16
// bytes, eight elements come by one load.
template <class Stored>
__device__ inline float dot_of(const AttentionBackwardArgs& a, std::int64_t o, std::int64_t d_o,
                               int lane, bool aligned) {
  const auto* left = static_cast<const Stored*>(a.o.data) + o;
  const auto* right = static_cast<const Stored*>(a.d_o.data) + d_o;
  float sum = 0;
  if constexpr (sizeof(Stored) == 2) {
    if (aligned) {
      struct alignas(16) Eight {
        Stored of[8];
      };
#pragma unroll 2
      for (int c = 8 * lane; c < a.dim_v; c += 8 * kLanes) {
        const Eight x = *reinterpret_cast<const Eight*>(left + c);
        const Eight y = *reinterpret_cast<const Eight*>(right + c);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          sum = fmaf(load_as<float>(x.of[i]), load_as<float>(y.of[i]), sum);
        }
      }
      return sum;
    }
  }
  for (int c = lane; c < a.dim_v; c += kLanes) {
    sum = fmaf(load_as<float>(left[c]), load_as<float>(right[c]), sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    prepare_rows(const __grid_constant__ AttentionBackwardArgs a, const Divisor blocks_of_head,
                 bool aligned) {
  await_previous();
  const auto block = static_cast<int>(blockIdx.x);
  const auto heads = static_cast<int>(a.heads);
  const int head_of_all = block / blocks_of_head;
  const std::int64_t b = head_of_all / heads;
  const std::int64_t head = head_of_all % heads;
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t token = std::int64_t{block % blocks_of_head} * kRows + thread / kLanes;
  if (token >= a.queries) return;  // with the other lanes of its row
  const int lane = thread % kLanes;
  const std::int64_t o = a.o.offset(b, head, token);
  const std::int64_t d_o = a.d_o.offset(b, head, token);
  float sum = 0;
  if (a.o.dtype == a.d_o.dtype) {
    with_type_for<float>(a.o.dtype, [&]<class Stored>(Type<Stored>) {
      sum = dot_of<Stored>(a, o, d_o, lane, aligned);
    });
  } else {
    for (int c = lane; c < a.dim_v; c += kLanes) {
      sum = fmaf(read_like<float>(a.o.data, a.o.dtype, o + c),
                 read_like<float>(a.d_o.data, a.d_o.dtype, d_o + c), sum);
    }
  }
  const unsigned row = 0xFFU << (thread % kWarp / kLanes * kLanes);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(row, sum, distance);
  }
  if (lane != 0) return;
  if (a.d_lse) sum -= read_like<float>(a.d_lse.data, a.d_lse.dtype, a.d_lse.offset(b, head, token));
  const float lse = read_like<float>(a.lse.data, a.lse.dtype, a.lse.offset(b, head, token));
  backward_row(a, b, head, token) = {exponent_of(lse), sum};
}

// Whether every token of a tensor begins at a multiple of 16 bytes.
bool in_sixteens(const Heads& of) {
  const std::int64_t eights = of.batch | of.head | of.token;
  return reinterpret_cast<std::uintptr_t>(of.data) % 16 == 0 && eights % 8 == 0;
}

}  // namespace

Status prepare_backward(const AttentionBackwardArgs& a, std::string_view variant) {
  const std::int64_t heads = (a.q_offsets ? 1 : a.batch) * a.heads;
  const std::int64_t blocks_of_head = ceil_div(a.queries, kRows);
  if (heads * blocks_of_head == 0) return {};
  return launch({.queue = a.queue, .blocks = heads * blocks_of_head, .threads = kThreads}, variant,
                prepare_rows, a, Divisor(static_cast<int>(blocks_of_head)),
                in_sixteens(a.o) && in_sixteens(a.d_o));
}

}  // namespace onepass::ops::attention
