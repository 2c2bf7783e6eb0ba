// attention/03_flash_wmma: scores never in memory.
//
// Idea    a block has 64 queries and walks over tiles of 64 keys. It computes the tile's scores, merges them into the
//         state that each row has so far, and adds the tile's weighted values to the row's sums, which shrink by
//         what the maximum has grown. Rows are divided by their d at the end, once.
// Versus  02_fused_tuned: one launch in place of five, and nothing as large as queries × keys anywhere. kᵀ is k read by
//         columns. Tiles that a causal mask hides altogether are not computed.
// Bytes   q and o once; k and v once a tile of queries, from L2 where a head's fit there. A fragment's layout is
//         unknown, and a row of one cannot be scaled: so scores, weights and sums lie in shared memory, where every
//         tile reads and writes all of the sums twice.
// Limits  sm_80; f16, bf16; dims in multiples of 16 up to 256 as far as the tiles fit into shared memory; tokens at
//         multiples of 16 bytes; scale, causal, grouped heads, lse.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "core/state.hpp"
#include "merge/warp.cuh"
#include "ops/attention/walk/variants.hpp"
#include "ops/attention/walk/wmma_gemm.cuh"

namespace onepass::ops::attention {
namespace {

using geometry::kFlashThreads;
using geometry::kFlashTile;
using geometry::kPad;

constexpr int kRows = 16;                     // a warp, of a tile's 64
constexpr int kLanes = 8;                     // that share a row
constexpr int kRounds = kRows * kLanes / 32;  // until all rows of a warp had their turn
constexpr int kKeys = kFlashTile / kLanes;    // of a row's scores, a lane
constexpr int kKeyParts = kFlashTile / 16;    // fragments along a tile's keys
constexpr int kScoreStride = kFlashTile + kPad;
static_assert(kFlashThreads / 32 * kRows == kFlashTile);

// A block's tiles in shared memory. A warp has its own rows of all but the keys and values.
template <class Stored>
struct Tiles {
  int stride;  // of rows of dim
  float *sums, *scores;
  Stored *weights, *q, *kv;  // kv: the keys of a tile, then its values

  __device__ Tiles(std::byte* memory, int dim) : stride(dim + kPad) {
    sums = reinterpret_cast<float*>(memory);
    scores = sums + kFlashTile * stride;
    weights = reinterpret_cast<Stored*>(scores + kFlashTile * kScoreStride);
    q = weights + kFlashTile * kScoreStride;
    kv = q + kFlashTile * stride;
  }
};

// Which of its warp's rows a lane has in a round, and where among the lanes of that row it stands.
__device__ inline int own_row(int round) {
  const int thread = static_cast<int>(threadIdx.x);
  return thread / 32 * kRows + round * (32 / kLanes) + thread % 32 / kLanes;
}
__device__ inline int own_lane() { return static_cast<int>(threadIdx.x) % kLanes; }

// The warp's 16 rows of scores: q by the rows of k, which are the columns of kᵀ.
template <class Stored>
__device__ inline void multiply_keys(const Tiles<Stored>& t, int first_row, int dim) {
  SumPart s[kKeyParts];
#pragma unroll
  for (SumPart& part : s) wmma::fill_fragment(part, 0.F);
  for (int column = 0; column < dim; column += 16) {
    LeftPart<Stored> left;
    load_part(left, t.q + first_row * t.stride + column, t.stride);
#pragma unroll
    for (int i = 0; i < kKeyParts; ++i) {
      RightPart<Stored, wmma::col_major> right;
      load_part(right, t.kv + 16 * i * t.stride + column, t.stride);
      wmma::mma_sync(s[i], left, right, s[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kKeyParts; ++i) {
    wmma::store_matrix_sync(t.scores + first_row * kScoreStride + 16 * i, s[i], kScoreStride,
                            wmma::mem_row_major);
  }
}

// Scores become weights against the maximum of all tiles so far, and the sums from before shrink to it.
template <class Stored>
__device__ inline void absorb(const Tiles<Stored>& t, const attention_tiles::Sight& sight,
                              int first_query, int first_key, float scale, int dim,
                              State<float> (&state)[kRounds]) {
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int row = own_row(round);
    const int end = sight.end(first_query + row) - first_key;  // of the tile
    const float* scores = t.scores + row * kScoreStride;
    float z[kKeys];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const int key = own_lane() + kLanes * j;
      z[j] = key < end ? __fmul_rn(scores[key], scale) : minus_infinity<float>();
    }
    const State<float> mine = fold_in_place(z);
    const State<float> next = merge(state[round], group_fold(mine, Merge<float>(), kLanes));

    const float weigh = rescale(next.m, mine.m);
    Stored* weights = t.weights + row * kScoreStride;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      weights[own_lane() + kLanes * j] = narrow<Stored>(z[j] * weigh);
    }
    const float shrink = rescale(next.m, state[round].m);
    float* sums = t.sums + row * t.stride;
    for (int column = own_lane(); column < dim; column += kLanes) sums[column] *= shrink;
    state[round] = next;
  }
}

// The warp's 16 rows of sums, 16 columns at a time, fetched and put back.
template <class Stored>
__device__ inline void add_values(const Tiles<Stored>& t, int first_row, int dim) {
  LeftPart<Stored> left[kKeyParts];
#pragma unroll
  for (int i = 0; i < kKeyParts; ++i) {
    load_part(left[i], t.weights + first_row * kScoreStride + 16 * i, kScoreStride);
  }
  for (int column = 0; column < dim; column += 16) {
    float* at = t.sums + first_row * t.stride + column;
    SumPart sum;
    wmma::load_matrix_sync(sum, at, static_cast<unsigned>(t.stride), wmma::mem_row_major);
#pragma unroll
    for (int i = 0; i < kKeyParts; ++i) {
      RightPart<Stored, wmma::row_major> right;
      load_part(right, t.kv + 16 * i * t.stride + column, t.stride);
      wmma::mma_sync(sum, left[i], right, sum);
    }
    wmma::store_matrix_sync(at, sum, static_cast<unsigned>(t.stride), wmma::mem_row_major);
  }
}

// A block's tile of queries: those with the most keys first, the tiles of a head side by side.
struct Place {
  std::int64_t batch, head;
  int first_query;

  __device__ explicit Place(const AttentionArgs& a) {
    const std::int64_t tiles = (a.queries + kFlashTile - 1) / kFlashTile;
    const std::int64_t index = blockIdx.x;
    first_query = static_cast<int>(tiles - 1 - index % tiles) * kFlashTile;
    head = index / tiles % a.heads;
    batch = index / tiles / a.heads;
  }
};

template <class Stored>
__global__ __launch_bounds__(kFlashThreads) void flash_wmma_kernel(
    const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(128) std::byte memory[];
  const int dim = a.dim;
  const Tiles<Stored> t(memory, dim);
  const Place place(a);
  const std::int64_t kv_head = place.head / (a.heads / a.kv_heads);
  const attention_tiles::Sight sight = sight_of(a, {0, a.queries, 0, a.keys});
  const auto k = matrix_of<Stored>(a.k, place.batch, kv_head, sight.keys, dim);
  const auto v = matrix_of<Stored>(a.v, place.batch, kv_head, sight.keys, dim);
  const auto load = [&](Stored* to, const Matrix<Stored>& from, int first) {
    load_tile<kFlashThreads>(to, t.stride, kFlashTile, dim, from, first, 0);
  };
  load(t.q, matrix_of<Stored>(a.q, place.batch, place.head, sight.queries, dim), place.first_query);
  for (int i = static_cast<int>(threadIdx.x); i < kFlashTile * t.stride; i += kFlashThreads) {
    t.sums[i] = 0;
  }

  State<float> state[kRounds];
#pragma unroll
  for (State<float>& row : state) row = identity<float>();
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kRows;
  const auto keys = attention_tiles::key_tiles(sight, place.first_query, kFlashTile, kFlashTile);
  for (int tile = keys.begin; tile < keys.end; ++tile) {
    const int first_key = tile * kFlashTile;
    __syncthreads();  // nobody needs the values before
    load(t.kv, k, first_key);
    __syncthreads();
    multiply_keys(t, first_row, dim);
    __syncthreads();  // the scores are there, and nobody needs the keys
    load(t.kv, v, first_key);
    absorb(t, sight, place.first_query, first_key, static_cast<float>(a.scale), dim, state);
    __syncthreads();
    add_values(t, first_row, dim);
  }
  __syncthreads();

#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int row = own_row(round);
    const int query = place.first_query + row;
    if (query >= sight.queries) continue;
    const float by = factor(state[round], state[round].m);
    const std::int64_t to = a.o.offset(place.batch, place.head, query);
    for (int column = own_lane(); column < dim; column += kLanes) {
      write_like(a.o.data, a.o.dtype, to + column, t.sums[row * t.stride + column] * by);
    }
    if (a.lse && own_lane() == 0) {
      write_like(a.lse.data, a.lse.dtype, a.lse.offset(place.batch, place.head, query),
                 logsumexp(state[round]));
    }
  }
}

template <class Stored>
Status attend_flash_wmma(const AttentionArgs& a, const WalkLaunch& how) {
  const auto kernel = flash_wmma_kernel<Stored>;
  if (Status status = allow_shared(reinterpret_cast<const void*>(kernel), how.shared_bytes);
      !status.ok()) {
    return status;
  }
  kernel<<<static_cast<unsigned>(how.blocks), kFlashThreads, how.shared_bytes,
           static_cast<cudaStream_t>(a.queue.stream)>>>(a);
  return launch_status("attention's walk");
}

}  // namespace

Status flash_wmma(const AttentionArgs& args, const WalkLaunch& how) {
  return args.q.dtype == DType::bf16 ? attend_flash_wmma<BF16>(args, how)
                                     : attend_flash_wmma<F16>(args, how);
}

}  // namespace onepass::ops::attention
