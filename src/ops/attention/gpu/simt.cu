// attention/gpu_simt: without tensor cores, in float32 throughout.
//
// Idea    a warp per row. Its lanes have a key each for the scores and some columns each for the
//         sums; the rows of a block share keys and values in shared memory, as floats.
// Versus  gpu_flash: products of f32 are not rounded to 16 bits.
// Bytes   q and o once; k and v once for eight rows.
// Limits  any GPU; f32, f16, bf16; every option, any dim, any stride.
// Proof   `onepass verify attention`; numbers: results/h200/attention.json.

#include "core/cuda/dependent.cuh"
#include "merge/warp.cuh"
#include "ops/attention/gpu/packed.cuh"
#include "ops/attention/gpu/variants.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;
constexpr int kKeys = 32;     // a lane each
constexpr int kColumns = 16;  // a lane, at most

// Rows of floats, one more than they have: lanes that read a column of 32 rows meet no bank twice.
__device__ inline float* row_at(float* tile, int row, int dim) { return tile + row * (dim + 1); }

// One token of k or v as floats; `missing` where its page is not there, and the call asked to look.
__device__ inline void load_token(float* to, const PackedRows& rows, const Heads& operand, int key,
                                  float missing, int lane) {
  const AttentionArgs& a = rows.a;
  const bool there = key < rows.sight.keys;
  bool lost = false;
  if (there && a.pages.checked) {
    const std::int32_t page = a.pages.table[rows.b * a.pages.stride + key / a.pages.size];
    lost = page < 0 || page >= a.pages.count;
  }
  const std::int64_t at =
      there && !lost ? key_offset(a, rows.s, operand, rows.b, rows.kv_head, key) : 0;
  for (int c = lane; c < a.dim; c += kLanes) {
    to[c] = lost ? missing : there ? read_like<float>(operand.data, operand.dtype, at + c) : 0.F;
  }
}

// z of this lane's key.
__device__ inline float logit(const PackedRows& rows, const QueryMasks& masks, float slope,
                              int query, int key, float score) {
  const AttentionArgs& a = rows.a;
  if (key < rows.sight.begin(query) || key >= rows.sight.end(query) || masks.hides(key)) {
    return minus_infinity<float>();
  }
  return capped(score * static_cast<float>(a.scale), static_cast<float>(a.softcap)) -
         slope * fabsf(static_cast<float>(key - rows.sight.own(query))) + masks.added(key);
}

__global__ void __launch_bounds__(kWarps* kLanes)
    simt_kernel(const __grid_constant__ AttentionArgs a, const Divisor sharing,
                std::int64_t tiles) {
  extern __shared__ float memory[];
  await_previous();
  const int dim = a.dim;
  float* k = memory;
  float* v = row_at(k, kKeys, dim);
  float* q = row_at(v, kKeys, dim);
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const auto warp = static_cast<int>(threadIdx.x / kLanes);
  const std::int64_t index = blockIdx.x;
  const PackedRows rows(a, sharing, index / tiles / a.kv_heads,
                        static_cast<int>(index / tiles % a.kv_heads));
  const int first_row = static_cast<int>(index % tiles) * kWarps;
  if (first_row >= rows.count()) return;
  const int row = first_row + warp;
  const bool live = row < rows.count();
  const int query = rows.query(live ? row : first_row);
  const int head = rows.head(live ? row : first_row);
  const QueryMasks masks(a, rows.s, rows.b, head, query);
  const float slope = slope_of(a, rows.b, head);

  float* own_q = row_at(q, warp, dim);
  const std::int64_t q_at = a.q.offset(rows.b, head, rows.s.q_first + query);
  for (int c = lane; c < dim; c += kLanes) {
    own_q[c] = read_like<float>(a.q.data, a.q.dtype, q_at + c);
  }

  State<float> state = first_state(a, head);
  float o[kColumns] = {};
  const KeyTiles keys = rows.key_tiles(first_row, kWarps, kKeys);
  for (int tile = keys.begin; tile < keys.end; ++tile) {
    __syncthreads();
    for (int i = warp; i < kKeys; i += kWarps) {
      load_token(row_at(k, i, dim), rows, a.k, tile * kKeys + i, nanf(""), lane);
      load_token(row_at(v, i, dim), rows, a.v, tile * kKeys + i, 0, lane);
    }
    __syncthreads();
    const float* own_k = row_at(k, lane, dim);
    float score = 0;
    for (int c = 0; c < dim; ++c) score = fmaf(own_q[c], own_k[c], score);
    const float z = logit(rows, masks, slope, query, tile * kKeys + lane, score);

    const State<float> next = merge(state, warp_fold(leaf(z), Merge<float>()));
    const float by = rescale(next.m, state.m);
    const float mine = exponential(z - shift(next.m));
    state = next;
#pragma unroll
    for (float& x : o) x *= by;
    const unsigned live = __ballot_sync(0xFFFFFFFFU, z != minus_infinity<float>());
    for (int i = 0; i < kKeys; ++i) {
      if ((live >> i & 1) == 0) continue;  // is not there, whatever its value
      const float weight = __shfl_sync(0xFFFFFFFFU, mine, i);
      const float* value = row_at(v, i, dim);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int c = lane + kLanes * j;
        if (c < dim) o[j] = fmaf(weight, value[c], o[j]);
      }
    }
  }
  if (!live) return;
  const std::int64_t o_at = a.o.offset(rows.b, head, rows.s.q_first + query);
  const float by = factor(state, state.m);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const int c = lane + kLanes * j;
    if (c < dim) write_like(a.o.data, a.o.dtype, o_at + c, o[j] * by);
  }
  if (lane == 0) write_lse(rows, row, state);
}

}  // namespace

Status gpu_simt(const AttentionArgs& a, const gpu_attention::SimtLaunch& planned) {
  const Divisor sharing = sharing_of(a);
  const std::int64_t tiles = (a.queries * sharing + kWarps - 1) / kWarps;
  return launch({.queue = a.queue,
                 .blocks = planned.blocks,
                 .threads = planned.threads,
                 .shared_bytes = planned.shared_bytes},
                "gpu_simt", simt_kernel, a, sharing, tiles);
}

}  // namespace onepass::ops::attention
