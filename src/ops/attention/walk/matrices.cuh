// What 00 to 02 have in common: their matrices in the workspace, the launches around the
// softmax, and the blocks that have a row of scores each. The softmax itself is one per file,
// in reading order.
#pragma once

#include "core/state.hpp"
#include "merge/block.cuh"
#include "ops/attention/walk/scratch.hpp"
#include "ops/attention/walk/wmma_gemm.cuh"

namespace onepass::ops::attention {

// One matrix per head, in the workspace.
template <class T>
struct Matrices {
  Tokens<T> transposed;  // kᵀ: a row per column of k, zeros past the last key
  Tokens<float> scores;  // a row per query
  Tokens<T> weights;     // the same, zeros past the last key
  Tokens<float> sums;    // a row per query
  int keys;              // filled up to whole tiles
};

template <class T>
Matrices<T> matrices_of(const Attention<T>& a, std::byte* workspace) {
  const Scratch s = scratch_of(a);
  const auto matrix = [&]<class Value>(Type<Value>, std::size_t at, std::int64_t heads,
                                       std::int64_t rows, std::int64_t columns) {
    return Tokens<Value>{.data = reinterpret_cast<Value*>(workspace + at),
                         .batch = heads * rows * columns,
                         .head = rows * columns,
                         .token = columns};
  };
  return {matrix(Type<T>{}, s.transposed, a.kv_heads, a.dim, s.keys),
          matrix(Type<float>{}, s.scores, a.heads, s.queries, s.keys),
          matrix(Type<T>{}, s.weights, a.heads, s.queries, s.keys),
          matrix(Type<float>{}, s.sums, a.heads, s.queries, s.columns), static_cast<int>(s.keys)};
}

// ---- rows of scores -----------------------------------------------------------------------------

// The query that a block has, and its rows.
template <class T>
struct QueryRow {
  std::int64_t batch, head, query;
  float* scores;
  T* weights;
  const float* sums;
  int keys, filled;  // of a row: keys, and with what fills it up
  int end;           // the first key that the query does not see
  float scale;

  __device__ QueryRow(const Attention<T>& a, const Matrices<T>& m)
      : batch(blockIdx.x / a.queries / a.heads),
        head(blockIdx.x / a.queries % a.heads),
        query(blockIdx.x % a.queries),
        scores(m.scores.at(batch, head, query)),
        weights(m.weights.at(batch, head, query)),
        sums(m.sums.at(batch, head, query)),
        keys(static_cast<int>(a.keys)),
        filled(m.keys),
        end(a.end(static_cast<int>(query))),
        scale(a.scale) {}

  // Rounded here, whatever it is subtracted from next: the largest logit minus itself is 0.
  __device__ float logit(float score) const { return __fmul_rn(score, scale); }
};

// body(i) for every i below count that is this thread's.
template <class Body>
__device__ inline void for_each(int count, Body body) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) body(i);
}

// Launches a kernel with a block per query.
template <class T>
Status launch_rows(void (*kernel)(Attention<T>, Matrices<T>), const Attention<T>& a,
                   const Matrices<T>& m, const WalkLaunch& how, void* stream) {
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads), 0,
           static_cast<cudaStream_t>(stream)>>>(a, m);
  return launch_status("attention's walk");
}

// ---- before and after the softmax ---------------------------------------------------------------

inline constexpr int kTurn = 32;  // rows and columns that a block turns
inline constexpr int kTurnRows = 8;

// kᵀ, so that both products multiply rows by columns. A tile goes through shared memory: rows are
// read along their columns and written along their keys, both in whole lines.
template <class T>
__global__ void __launch_bounds__(kTurn* kTurnRows)
    transpose(const __grid_constant__ Attention<T> a, const __grid_constant__ Matrices<T> m) {
  __shared__ T tile[kTurn][kTurn + 2];  // an odd number of words: no bank twice
  const int lane = static_cast<int>(threadIdx.x) % kTurn;
  const int first = static_cast<int>(threadIdx.x) / kTurn;
  std::int64_t index = blockIdx.x;
  const int key = static_cast<int>(index % (m.keys / kTurn)) * kTurn;
  index /= m.keys / kTurn;
  const int column_tiles = (a.dim + kTurn - 1) / kTurn;
  const int column = static_cast<int>(index % column_tiles) * kTurn;
  index /= column_tiles;
  const std::int64_t head = index % a.kv_heads;
  const std::int64_t batch = index / a.kv_heads;

  for (int i = first; i < kTurn; i += kTurnRows) {
    const bool there = key + i < a.keys && column + lane < a.dim;
    tile[i][lane] = there ? a.k.at(batch, head, key + i)[column + lane] : T{0};
  }
  __syncthreads();
  for (int i = first; i < kTurn && column + i < a.dim; i += kTurnRows) {
    m.transposed.at(batch, head, column + i)[key + lane] = tile[lane][i];
  }
}

template <class T>
Status transpose_keys(const Attention<T>& a, const Matrices<T>& m, void* stream) {
  const std::int64_t tiles = m.keys / kTurn * ((a.dim + kTurn - 1) / kTurn);
  const auto blocks = static_cast<unsigned>(tiles * a.kv_heads * a.batch);
  transpose<T><<<blocks, kTurn * kTurnRows, 0, static_cast<cudaStream_t>(stream)>>>(a, m);
  return launch_status("attention's walk");
}

// q · kᵀ.
template <class T>
Product<T> scores_of(const Attention<T>& a, const Matrices<T>& m) {
  return {.left = a.q,
          .right = m.transposed.to_read(),
          .out = m.scores,
          .rows = static_cast<int>(a.queries),
          .inner = a.dim,
          .columns = m.keys,
          .batch = a.batch,
          .heads = a.heads,
          .sharing = a.heads / a.kv_heads};
}

// weights · v.
template <class T>
Product<T> sums_of(const Attention<T>& a, const Matrices<T>& m) {
  return {.left = m.weights.to_read(),
          .right = a.v,
          .out = m.sums,
          .rows = static_cast<int>(a.queries),
          .inner = static_cast<int>(a.keys),
          .columns = a.dim,
          .batch = a.batch,
          .heads = a.heads,
          .sharing = a.heads / a.kv_heads};
}

// The sums to o, rounded.
template <class T>
__global__ void convert_sums(const __grid_constant__ Attention<T> a,
                             const __grid_constant__ Matrices<T> m) {
  const QueryRow<T> row(a, m);
  T* o = a.o.at(row.batch, row.head, row.query);
  for_each(a.dim, [&](int i) { o[i] = narrow<T>(row.sums[i]); });
}

// All of a step, given the kernels between the two products; it ends with the first that fails.
template <class T, class... Kernels>
Status attend_in_memory(const Attention<T>& a, const Call& call, const WalkLaunch& how,
                        Kernels... kernels) {
  const Matrices<T> m = matrices_of(a, call.workspace);
  WalkLaunch last = how;  // a row of sums has a thread for each of up to 256 columns
  last.threads = static_cast<int>(round_up(a.dim, 32));
  if (Status first = transpose_keys(a, m, call.stream); !first.ok()) return first;
  if (Status left = launch_product(scores_of(a, m), call.stream); !left.ok()) return left;
  Status status;
  ((status.ok() ? void(status = launch_rows<T>(kernels, a, m, how, call.stream)) : void()), ...);
  if (!status.ok()) return status;
  if (Status right = launch_product(sums_of(a, m), call.stream); !right.ok()) return right;
  return launch_rows<T>(convert_sums<T>, a, m, last, call.stream);
}

}  // namespace onepass::ops::attention
