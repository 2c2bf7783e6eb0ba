// attention/gpu_hopper of the backward: five products per tile, all of a Hopper GPU's tensor cores.
//
// Idea    a block owns a tile of keys, its dk and dv in registers. Queries and their gradients come
//         by the copy engine; scores are transposed, so that weights go from product to product in
//         registers. Every block makes a part of dq of each tile of queries, which the copy engine
//         adds to float32 sums in L2.
// Versus  gpu_flash: weights are made once and not twice, and no warp waits for a load.
// Bytes   every tile of keys reads the queries that see it, from L2, and adds as many sums to it.
// Limits  sm_90a; f16, bf16; dims to 128; causal, windows, lengths, groups, no offsets; the
//         workspace has float32 sums of dq.
// Bits    parts of dq are added in an order that the shape, the heads of the whole batch and the
//         number of SMs decide: a block waits for its turn. Blocks start at different tiles, so
//         that it rarely has to (turns.hpp).
// Proof   `onepass verify attention_backward`; numbers: results/h200/attention_backward.json.
//
// The kernel is launch.cuh's; dim_*.cu compile it.

#include <cuda_runtime.h>

#include "core/cuda/dependent.cuh"
#include "core/try.hpp"
#include "ops/attention/gpu/backward/gradient.cuh"
#include "ops/attention/gpu/backward/hopper/variants.hpp"
#include "ops/attention/gpu/backward/variants.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;

// What a block reads: the sums of a tile of queries, 64 × 64 by each of two warpgroups, as their
// registers were (core/cuda/wgmma.cuh): four floats of a thread side by side, those of one register
// of all threads one after the other.
struct ConvertParams {
  AttentionBackwardArgs args;
  const float* sums;
  const int* added;
  int query_tiles, tile_queries;
};

// A block per tile of queries, a thread per eight columns of two rows.
__global__ void __launch_bounds__(kThreads) convert_d_q(const __grid_constant__ ConvertParams p) {
  await_previous();
  const AttentionBackwardArgs& a = p.args;
  const std::int64_t tile = blockIdx.x;
  const int first_query = static_cast<int>(tile % p.query_tiles) * p.tile_queries;
  const std::int64_t head = tile / p.query_tiles % a.heads;
  const std::int64_t b = tile / p.query_tiles / a.heads;
  const bool any = p.added[tile] > 0;  // otherwise nobody has written the sums
  const auto* sums = reinterpret_cast<const float4*>(p.sums + tile * (2 * 64 * 64));
#pragma unroll
  for (int i = 0; i < 2 * 8 * 32; i += kThreads) {
    const int at = i + static_cast<int>(threadIdx.x);
    const int group = at / 256, rows = at / 8 % 32, eight = at % 8;
    const int query =
        first_query + (p.tile_queries > 64 ? group * 64 : 0) + rows / 8 * 16 + rows % 8;
    const int column = (p.tile_queries > 64 ? 0 : group * 64) + eight * 8;
    float low[8] = {}, high[8] = {};
    if (any) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 four = sums[(group * 8 + eight) * 128 + rows * 4 + j];
        low[2 * j] = four.x, low[2 * j + 1] = four.y;
        high[2 * j] = four.z, high[2 * j + 1] = four.w;
      }
    }
    if (column >= a.dim) continue;
    const auto store = [&](int row, const float(&eight_of)[8]) {
      if (row >= a.queries) return;
      store_eight(a.d_q, a.d_q.offset(b, head, row) + column, eight_of, static_cast<float>(a.scale),
                  a.accumulate);
    };
    store(query, low);
    store(query + 8, high);
  }
}

}  // namespace

Status gpu_backward_hopper(const AttentionBackwardArgs& a,
                           const gpu_attention::BackwardHopperLaunch& planned) {
  ONEPASS_TRY(prepare_backward(a, "gpu_hopper"));
  std::byte* const added = a.workspace + planned.added_at;
  cudaMemsetAsync(added, 0, planned.scratch_bytes - planned.added_at,
                  static_cast<cudaStream_t>(a.queue.stream));
  ONEPASS_TRY(planned.dim == 64 ? gpu_backward_hopper_of<64>(a, planned)
                                : gpu_backward_hopper_of<128>(a, planned));
  const int tile_queries = gpu_attention::backward_hopper_queries(planned.dim);
  const ConvertParams convert{a, reinterpret_cast<const float*>(a.workspace + planned.sums_at),
                              reinterpret_cast<const int*>(added),
                              static_cast<int>(ceil_div(a.queries, tile_queries)), tile_queries};
  ONEPASS_TRY(launch({.queue = a.queue, .blocks = planned.query_tiles, .threads = kThreads},
                     "gpu_hopper", convert_d_q, convert));
  return finish_backward(a, "gpu_hopper");
}

}  // namespace onepass::ops::attention
