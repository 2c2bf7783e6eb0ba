// attention/gpu_simt of the backward: without tensor cores, in float32 throughout.
//
// Idea    a warp owns a row and its dq, then a warp owns a key and its dk and dv. Its lanes have a
//         key, or a row, each for q·k and do·v, and some columns each for the sums; the warps of a
//         block share what goes by in shared memory, as floats.
// Versus  gpu_simt of the forward: no state, since the lse has it, and twice: once per owner, so
//         that no sum is shared and every order is fixed.
// Bytes   q and do once, k and v once for eight rows; then k and v once, q and do once for eight
//         keys.
// Limits  any GPU; f32, f16, bf16; every option, any dims, any strides.
// Proof   `onepass verify attention_backward`.

#include "core/cuda/dependent.cuh"
#include "core/try.hpp"
#include "merge/warp.cuh"
#include "ops/attention/gpu/backward/pair.cuh"
#include "ops/attention/gpu/backward/variants.hpp"
#include "ops/attention/gpu/packed.cuh"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = gpu_attention::kBackwardSimtWarps;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline float* row_at(float* tile, int row, int dim) {
  return tile + row * gpu_attention::backward_simt_stride(dim);
}

// Tokens of an operand as floats, `Rows` of them, zeros from `count` on; at(i) is the i-th's
// offset. A warp has every kWarps-th, and asks for all of its elements before it waits for one.
template <int Rows, class At>
__device__ inline void load_tile(float* tile, const Heads& operand, int dim, int count, At at) {
  constexpr int kOwn = Rows / kWarps;
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const auto warp = static_cast<int>(threadIdx.x / kLanes);
  with_type_for<float>(operand.dtype, [&]<class Stored>(Type<Stored>) {
    const Stored* from[kOwn];
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const int i = warp + kWarps * r;
      from[r] = i < count ? static_cast<const Stored*>(operand.data) + at(i) : nullptr;
    }
    for (int c = lane; c < dim; c += kLanes) {
      float x[kOwn];
#pragma unroll
      for (int r = 0; r < kOwn; ++r) x[r] = from[r] == nullptr ? 0.F : load_as<float>(from[r][c]);
#pragma unroll
      for (int r = 0; r < kOwn; ++r) row_at(tile, warp + kWarps * r, dim)[c] = x[r];
    }
  });
}

// As load_tile: of q or do the rows from `first` to before `end`, of k or v all from `first` on.
template <int Count>
__device__ inline void load_rows(float* tile, const PackedRows& rows, const Heads& operand, int dim,
                                 int first, int end) {
  load_tile<Count>(tile, operand, dim, end - first,
                   [&](int i) { return rows.row_offset(operand, first + i); });
}
template <int Count>
__device__ inline void load_keys(float* tile, const PackedRows& rows, const Heads& operand, int dim,
                                 int first) {
  load_tile<Count>(tile, operand, dim, rows.sight.keys - first,
                   [&](int i) { return rows.token_offset(operand, first + i); });
}

// The product of the warp's own row and row `lane % Rows` of a tile. Where a tile has fewer rows
// than a warp has lanes, several of them share one.
template <int Rows>
__device__ inline float dot(const float* own, float* tile, int dim) {
  constexpr int kStep = 4 * (kLanes / Rows);
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const float* other = row_at(tile, lane % Rows, dim);
  float sum = 0;
  for (int c = lane / Rows * 4; c < dim; c += kStep) {
    const float4 x = *reinterpret_cast<const float4*>(own + c);
    const float4 y = *reinterpret_cast<const float4*>(other + c);
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    sum = fmaf(x.w, y.w, sum);
  }
  __syncwarp();
#pragma unroll
  for (int distance = Rows; distance < kLanes; distance *= 2) sum += exchange(sum, distance);
  return sum;
}

// Adds factor · row for each row of a tile, of which lane i has the i-th's factor. A factor of 0
// adds nothing: what it multiplies may be hidden, and NaN.
template <int Rows, int Columns>
__device__ inline void add_products(float (&sums)[Columns], float factor, float* tile, int dim) {
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const unsigned counts = __ballot_sync(kAllLanes, factor != 0);
  for (int i = 0; i < Rows; ++i) {
    if ((counts >> i & 1) == 0) continue;
    const float by = __shfl_sync(kAllLanes, factor, i);
    const float* row = row_at(tile, i, dim);
#pragma unroll
    for (int j = 0; j < Columns; ++j) {
      const int c = lane + kLanes * j;
      if (c < dim) sums[j] = fmaf(by, row[c], sums[j]);
    }
  }
}

template <int Columns>
__device__ inline void write_sums(const Heads& gradient, std::int64_t at, bool accumulate,
                                  const float (&sums)[Columns], int dim) {
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  with_type_for<float>(gradient.dtype, [&]<class Stored>(Type<Stored>) {
    auto* to = static_cast<Stored*>(gradient.data) + at;
#pragma unroll
    for (int j = 0; j < Columns; ++j) {
      const int c = lane + kLanes * j;
      if (c >= dim) continue;
      const float before = accumulate ? load_as<float>(to[c]) : 0.F;
      to[c] = store_as<Stored>(before + sums[j]);
    }
  });
}

// The kv head that a block's kWarps rows or keys belong to; `first` is the first of these.
__device__ inline PackedRows rows_of_block(const AttentionArgs& a, const Divisor& sharing,
                                           std::int64_t tiles, int& first) {
  const std::int64_t index = blockIdx.x;
  first = static_cast<int>(index % tiles) * kWarps;
  return {a, sharing, index / tiles / a.kv_heads, static_cast<int>(index / tiles % a.kv_heads)};
}

// dq: a block has kWarps rows of a kv head, and the keys that one of them sees go by.
template <int Columns>
__global__ void __launch_bounds__(kWarps* kLanes)
    backward_queries(const __grid_constant__ AttentionBackwardArgs a, const Divisor sharing,
                     std::int64_t tiles) {
  constexpr int kTile = gpu_attention::backward_simt_tile(Columns);
  extern __shared__ __align__(16) float memory[];
  await_previous();
  int first_row;
  const PackedRows rows = rows_of_block(a, sharing, tiles, first_row);
  if (first_row >= rows.count()) return;
  const auto warp = static_cast<int>(threadIdx.x / kLanes);
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const bool live = first_row + warp < rows.count();
  const int row = live ? first_row + warp : first_row;
  const QueryPairs pairs(a, rows.s, rows.sight, rows.b, rows.head(row), rows.query(row));

  float* k = memory;
  float* v = row_at(k, kTile, a.dim);
  float* q = row_at(v, kTile, a.dim_v);
  float* d_o = row_at(q, kWarps, a.dim);
  load_rows<kWarps>(q, rows, a.q, a.dim, first_row, rows.count());
  load_rows<kWarps>(d_o, rows, a.d_o, a.dim_v, first_row, rows.count());

  float d_q[Columns] = {};
  const KeyTiles keys = rows.key_tiles(first_row, kWarps, kTile);
  for (int tile = keys.begin; tile < keys.end; ++tile) {
    const int first = tile * kTile;
    __syncthreads();
    load_keys<kTile>(k, rows, a.k, a.dim, first);
    load_keys<kTile>(v, rows, a.v, a.dim_v, first);
    __syncthreads();
    const float score = dot<kTile>(row_at(q, warp, a.dim), k, a.dim);
    const float d_weight = dot<kTile>(row_at(d_o, warp, a.dim_v), v, a.dim_v);
    const Pair pair = pairs.at(first + lane % kTile, score, d_weight);
    add_products<kTile>(d_q, live ? pair.d_score : 0.F, k, a.dim);
  }
  if (!live) return;
  write_sums(a.d_q, rows.row_offset(a.d_q, row), a.accumulate, d_q, a.dim);
}

// dk and dv: a block has kWarps keys of a kv head, and the rows that see one of them go by.
template <int Columns>
__global__ void __launch_bounds__(kWarps* kLanes)
    backward_keys(const __grid_constant__ AttentionBackwardArgs a, const Divisor sharing,
                  std::int64_t tiles) {
  constexpr int kTile = gpu_attention::backward_simt_tile(Columns);
  extern __shared__ __align__(16) float memory[];
  await_previous();
  int first_key;
  const PackedRows rows = rows_of_block(a, sharing, tiles, first_key);
  if (rows.count() == 0 || first_key >= rows.sight.keys) return;
  const auto warp = static_cast<int>(threadIdx.x / kLanes);
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const int key = first_key + warp;

  float* q = memory;
  float* d_o = row_at(q, kTile, a.dim);
  float* k = row_at(d_o, kTile, a.dim_v);
  float* v = row_at(k, kWarps, a.dim);
  load_keys<kWarps>(k, rows, a.k, a.dim, first_key);
  load_keys<kWarps>(v, rows, a.v, a.dim_v, first_key);

  float d_k[Columns] = {}, d_v[Columns] = {};
  const QueryRange seeing = queries_seeing(rows.sight, first_key, kWarps);
  const int end = seeing.end * sharing;
  for (int first = seeing.begin * sharing; first < end; first += kTile) {
    __syncthreads();
    load_rows<kTile>(q, rows, a.q, a.dim, first, end);
    load_rows<kTile>(d_o, rows, a.d_o, a.dim_v, first, end);
    __syncthreads();
    const float score = dot<kTile>(row_at(k, warp, a.dim), q, a.dim);
    const float d_weight = dot<kTile>(row_at(v, warp, a.dim_v), d_o, a.dim_v);
    Pair pair;
    if (const int row = first + lane % kTile; row < end) {
      const QueryPairs pairs(a, rows.s, rows.sight, rows.b, rows.head(row), rows.query(row));
      pair = pairs.at(key, score, d_weight);
    }
    __syncwarp();
    add_products<kTile>(d_v, pair.weight, d_o, a.dim_v);
    add_products<kTile>(d_k, pair.d_score, q, a.dim);
  }
  if (key >= rows.sight.keys) return;
  write_sums(a.d_k, rows.token_offset(a.d_k, key), a.accumulate, d_k, a.dim);
  write_sums(a.d_v, rows.token_offset(a.d_v, key), a.accumulate, d_v, a.dim_v);
}

template <int Columns>
Status launch_owners(const AttentionBackwardArgs& a,
                     const gpu_attention::BackwardSimtLaunch& planned) {
  const Divisor sharing = sharing_of(a);
  const auto run = [&](auto* kernel, std::int64_t blocks, std::int64_t owners) {
    if (blocks == 0) return Status{};
    return launch({.queue = a.queue,
                   .blocks = blocks,
                   .threads = planned.threads,
                   .shared_bytes = planned.shared_bytes},
                  "gpu_simt", kernel, a, sharing, (owners + kWarps - 1) / kWarps);
  };
  ONEPASS_TRY(run(backward_queries<Columns>, planned.query_blocks, a.queries * sharing));
  return run(backward_keys<Columns>, planned.key_blocks, a.keys);
}

}  // namespace

Status gpu_backward_simt(const AttentionBackwardArgs& a,
                         const gpu_attention::BackwardSimtLaunch& planned) {
  ONEPASS_TRY(prepare_backward(a, "gpu_simt"));
  if (planned.query_blocks > 0) {
    ONEPASS_TRY(planned.columns == 4   ? launch_owners<4>(a, planned)
                : planned.columns == 8 ? launch_owners<8>(a, planned)
                                       : launch_owners<16>(a, planned));
  }
  return finish_backward(a, "gpu_simt");
}

}  // namespace onepass::ops::attention
