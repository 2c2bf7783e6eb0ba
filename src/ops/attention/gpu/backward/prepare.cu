// The first kernel of attention's backward, for all variants: D = Σ do · o − dlse of each query,
// which is Σ p · dp over its keys, so that dz = p · (dp − D) needs no second pass over them.
// A warp per query; o and do once.

#include "core/cuda/dependent.cuh"
#include "merge/operators.hpp"
#include "merge/warp.cuh"
#include "ops/attention/gpu/backward/rows.cuh"
#include "ops/attention/gpu/backward/variants.hpp"
#include "rows/packs.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;

__device__ inline float exponent_of(float lse) {
  if (lse == minus_infinity<float>()) return -lse;
  return lse == -minus_infinity<float>() ? lse - lse : lse;
}

template <class Stored>
__device__ inline float dot_of(const AttentionBackwardArgs& a, std::int64_t o, std::int64_t d_o,
                               int lane) {
  const auto* left = static_cast<const Stored*>(a.o.data) + o;
  const auto* right = static_cast<const Stored*>(a.d_o.data) + d_o;
  float sum = 0;
  for (int c = lane; c < a.dim_v; c += kWarp) {
    sum = fmaf(load_as<float>(left[c]), load_as<float>(right[c]), sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    prepare_rows(const __grid_constant__ AttentionBackwardArgs a, std::int64_t rows) {
  await_previous();
  const std::int64_t row =
      (std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x)) / kWarp;
  if (row >= rows) return;
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t token = row % a.queries;
  const std::int64_t head = row / a.queries % a.heads;
  const std::int64_t b = row / a.queries / a.heads;
  const std::int64_t o = a.o.offset(b, head, token);
  const std::int64_t d_o = a.d_o.offset(b, head, token);
  float sum = 0;
  if (a.o.dtype == a.d_o.dtype) {
    with_type_for<float>(
        a.o.dtype, [&]<class Stored>(Type<Stored>) { sum = dot_of<Stored>(a, o, d_o, lane); });
  } else {
    for (int c = lane; c < a.dim_v; c += kWarp) {
      sum = fmaf(read_like<float>(a.o.data, a.o.dtype, o + c),
                 read_like<float>(a.d_o.data, a.d_o.dtype, d_o + c), sum);
    }
  }
  sum = warp_fold(sum, Add<float>());
  if (lane != 0) return;
  if (a.d_lse) sum -= read_like<float>(a.d_lse.data, a.d_lse.dtype, a.d_lse.offset(b, head, token));
  const float lse = read_like<float>(a.lse.data, a.lse.dtype, a.lse.offset(b, head, token));
  backward_row(a, b, head, token) = {exponent_of(lse), sum};
}

}  // namespace

Status prepare_backward(const AttentionBackwardArgs& a, std::string_view variant) {
  const std::int64_t rows = (a.q_offsets ? 1 : a.batch) * a.heads * a.queries;
  if (rows == 0) return {};
  return launch({.queue = a.queue, .blocks = ceil_div(rows, kThreads / kWarp), .threads = kThreads},
                variant, prepare_rows, a, rows);
}

}  // namespace onepass::ops::attention
