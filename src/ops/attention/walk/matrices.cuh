// What 00 to 02 have in common: their matrices in the workspace, the launches around the softmax, and the blocks that
// have a row of scores each. The softmax itself is one a file, in reading order.
#pragma once

#include "core/state.hpp"
#include "merge/block.cuh"
#include "ops/attention/walk/wmma_gemm.cuh"

namespace onepass::ops::attention {

// One matrix a head, in the workspace.
struct Matrices {
  Heads transposed;  // kᵀ: a row a column of k, zeros past the last key
  Heads scores;      // f32: a row a query
  Heads weights;     // 16 bits: the same, zeros past the last key
  Heads sums;        // f32: a row a query
  int keys;          // filled up to whole tiles
};

inline Matrices matrices_of(const AttentionArgs& a) {
  const geometry::Scratch s = geometry::scratch_of(a);
  const auto matrix = [&](std::size_t at, DType dtype, std::int64_t heads, std::int64_t rows,
                          std::int64_t columns) {
    return Heads{.data = a.workspace + at,
                 .dtype = dtype,
                 .batch = heads * rows * columns,
                 .head = rows * columns,
                 .token = columns};
  };
  return {matrix(s.transposed, a.k.dtype, a.kv_heads, a.dim, s.keys),
          matrix(s.scores, DType::f32, a.heads, s.queries, s.keys),
          matrix(s.weights, a.q.dtype, a.heads, s.queries, s.keys),
          matrix(s.sums, DType::f32, a.heads, s.queries, s.columns), static_cast<int>(s.keys)};
}

// ---- rows of scores -------------------------------------------------------------------------------

// The query that a block has, and its rows.
template <class Stored>
struct QueryRow {
  const AttentionArgs& a;
  std::int64_t batch, head, query;
  float* scores;
  Stored* weights;
  const float* sums;
  int keys, filled;  // of a row: keys, and with what fills it up
  int end;           // from here on no key is seen

  __device__ QueryRow(const AttentionArgs& args, const Matrices& m)
      : a(args),
        batch(blockIdx.x / a.queries / a.heads),
        head(blockIdx.x / a.queries % a.heads),
        query(blockIdx.x % a.queries),
        scores(static_cast<float*>(m.scores.data) + m.scores.offset(batch, head, query)),
        weights(static_cast<Stored*>(m.weights.data) + m.weights.offset(batch, head, query)),
        sums(static_cast<const float*>(m.sums.data) + m.sums.offset(batch, head, query)),
        keys(static_cast<int>(a.keys)),
        filled(m.keys),
        end(sight_of(a, {0, a.queries, 0, a.keys}).end(static_cast<int>(query))) {}

  // Rounded here, whatever it is subtracted from next: the largest logit minus itself is 0.
  __device__ float logit(float score) const {
    return __fmul_rn(score, static_cast<float>(a.scale));
  }

  // By one thread.
  __device__ void write_lse(const State<float>& state) const {
    if (!a.lse) return;
    write_like(a.lse.data, a.lse.dtype, a.lse.offset(batch, head, query), logsumexp(state));
  }
};

// body(i) for every i below count that is this thread's.
template <class Body>
__device__ inline void for_each(int count, Body body) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) body(i);
}

// Launches a kernel with a block a query.
inline Status launch_rows(void (*kernel)(AttentionArgs, Matrices), const AttentionArgs& a,
                          const WalkLaunch& how, const Matrices& m) {
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads), 0,
           static_cast<cudaStream_t>(a.queue.stream)>>>(a, m);
  return launch_status("attention's walk");
}

// ---- before and after the softmax -----------------------------------------------------------------

inline constexpr int kTurn = 32;  // rows and columns that a block turns
inline constexpr int kTurnRows = 8;

// kᵀ, so that both products multiply rows by columns. A tile goes through shared memory: rows are read along their
// columns and written along their keys, both in whole lines.
template <class Stored>
__global__ __launch_bounds__(kTurn* kTurnRows) void transpose(
    const __grid_constant__ AttentionArgs a, const __grid_constant__ Matrices m) {
  __shared__ Stored tile[kTurn][kTurn + 2];  // an odd number of words: no bank twice
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

  const auto* from = static_cast<const Stored*>(a.k.data);
  for (int i = first; i < kTurn; i += kTurnRows) {
    const bool there = key + i < a.keys && column + lane < a.dim;
    tile[i][lane] = there ? from[a.k.offset(batch, head, key + i) + column + lane] : Stored{0};
  }
  __syncthreads();
  auto* to = static_cast<Stored*>(m.transposed.data);
  for (int i = first; i < kTurn && column + i < a.dim; i += kTurnRows) {
    to[m.transposed.offset(batch, head, column + i) + key + lane] = tile[lane][i];
  }
}

template <class Stored>
Status transpose_keys(const AttentionArgs& a, const Matrices& m) {
  const std::int64_t tiles = m.keys / kTurn * ((a.dim + kTurn - 1) / kTurn);
  const auto blocks = static_cast<unsigned>(tiles * a.kv_heads * a.batch);
  transpose<Stored>
      <<<blocks, kTurn * kTurnRows, 0, static_cast<cudaStream_t>(a.queue.stream)>>>(a, m);
  return launch_status("attention's walk");
}

// q · kᵀ.
template <class Stored>
Status multiply_scores(const AttentionArgs& a, const Matrices& m) {
  return launch_product<Stored>({.left = a.q,
                                 .right = m.transposed,
                                 .out = m.scores,
                                 .rows = static_cast<int>(a.queries),
                                 .inner = a.dim,
                                 .columns = m.keys,
                                 .batch = a.batch,
                                 .heads = a.heads,
                                 .sharing = a.heads / a.kv_heads},
                                a.queue.stream, "attention's walk");
}

// weights · v.
template <class Stored>
Status multiply_values(const AttentionArgs& a, const Matrices& m) {
  return launch_product<Stored>({.left = m.weights,
                                 .right = a.v,
                                 .out = m.sums,
                                 .rows = static_cast<int>(a.queries),
                                 .inner = static_cast<int>(a.keys),
                                 .columns = a.dim,
                                 .batch = a.batch,
                                 .heads = a.heads,
                                 .sharing = a.heads / a.kv_heads},
                                a.queue.stream, "attention's walk");
}

// The sums to o, in its dtype.
template <class Stored>
__global__ void convert_sums(const __grid_constant__ AttentionArgs a,
                             const __grid_constant__ Matrices m) {
  const QueryRow<Stored> row(a, m);
  const std::int64_t to = a.o.offset(row.batch, row.head, row.query);
  for_each(a.dim, [&](int i) { write_like(a.o.data, a.o.dtype, to + i, row.sums[i]); });
}

// A row of sums has a thread for each of up to 256 columns.
template <class Stored>
Status write_output(const AttentionArgs& a, WalkLaunch how, const Matrices& m) {
  how.threads = static_cast<int>(round_up(a.dim, 32));
  return launch_rows(convert_sums<Stored>, a, how, m);
}

// The launches of a step, one after the other, until one fails.
template <class... Launches>
Status in_order(Launches... launches) {
  Status status;
  ((status.ok() ? void(status = launches()) : void()), ...);
  return status;
}

// All of it, given the launches between the two products: softmax(args, plan, matrices).
template <class Stored, class Softmax>
Status attend_in_memory(const AttentionArgs& a, const WalkLaunch& how, Softmax softmax) {
  const Matrices m = matrices_of(a);
  return in_order([&] { return transpose_keys<Stored>(a, m); },
                  [&] { return multiply_scores<Stored>(a, m); }, [&] { return softmax(m); },
                  [&] { return multiply_values<Stored>(a, m); },
                  [&] { return write_output<Stored>(a, how, m); });
}

}  // namespace onepass::ops::attention
