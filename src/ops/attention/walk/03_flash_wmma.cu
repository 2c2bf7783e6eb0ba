// attention/03_flash_wmma: scores never in memory.
//
// Idea    a block has 64 queries and walks over tiles of 64 keys. It computes the tile's scores,
//         merges them into the state that each row has so far, and adds the tile's weighted values
//         to the row's sums, which shrink by what the maximum has grown. Rows are divided by their
//         d at the end, once.
// Versus  02_fused_tuned: one launch in place of five, and nothing as large as queries ×
//         keys anywhere. kᵀ is k read by columns. Tiles that a causal mask hides altogether
//         are not computed.
// Bytes   q and o once; k and v once a tile of queries, from L2 where a head's fit there. A
//         fragment's layout is unknown, and a row of one cannot be scaled: so scores, weights and
//         sums lie in shared memory, where every tile reads and writes all of the sums twice.
// Limits  sm_80; f16, bf16; dims in multiples of 16 up to 256 as far as the tiles fit into shared
//         memory; tokens at multiples of 16 bytes; scale, causal, grouped heads.
// Proof   `onepass verify attention`; numbers: docs/walk/attention.md.

#include "core/state.hpp"
#include "merge/thread.cuh"
#include "merge/warp.cuh"
#include "ops/attention/walk/wmma_gemm.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kRows = 16;                     // a warp, of a tile's 64
constexpr int kLanes = 8;                     // that share a row
constexpr int kRounds = kRows * kLanes / 32;  // until all rows of a warp had their turn
constexpr int kKeys = kFlashTile / kLanes;    // of a row's scores, per lane
constexpr int kKeyParts = kFlashTile / 16;    // fragments along a tile's keys
constexpr int kScoreStride = kFlashTile + kPad;
static_assert(kFlashThreads / 32 * kRows == kFlashTile);

// A block's tiles in shared memory. A warp has its own rows of all but the keys and values.
template <class T>
struct Tiles {
  int stride;  // of rows of dim
  float *sums, *scores;
  T *weights, *q, *kv;  // kv: the keys of a tile, then its values

  __device__ Tiles(std::byte* memory, int dim) : stride(dim + kPad) {
    sums = reinterpret_cast<float*>(memory);
    scores = sums + kFlashTile * stride;
    weights = reinterpret_cast<T*>(scores + kFlashTile * kScoreStride);
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
template <class T>
__device__ inline void multiply_keys(const Tiles<T>& t, int first_row, int dim) {
  SumPart s[kKeyParts];
#pragma unroll
  for (SumPart& part : s) wmma::fill_fragment(part, 0.F);
  for (int column = 0; column < dim; column += 16) {
    LeftPart<T> left;
    load_part(left, t.q + first_row * t.stride + column, t.stride);
#pragma unroll
    for (int i = 0; i < kKeyParts; ++i) {
      RightPart<T, wmma::col_major> right;
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

// Scores become weights against the maximum of all tiles so far, and the sums from
// before shrink to it.
template <class T>
__device__ inline void absorb(const Tiles<T>& t, const Attention<T>& a, int first_query,
                              int first_key, State<float> (&state)[kRounds]) {
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int row = own_row(round);
    const int end = a.end(first_query + row) - first_key;  // of the tile
    const float* scores = t.scores + row * kScoreStride;
    float z[kKeys];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const int key = own_lane() + kLanes * j;
      z[j] = key < end ? __fmul_rn(scores[key], a.scale) : minus_infinity<float>();
    }
    const State<float> mine = fold_in_place(z);
    const State<float> next = merge(state[round], group_fold(mine, Merge<float>(), kLanes));

    const float weigh = rescale(next.m, mine.m);
    T* weights = t.weights + row * kScoreStride;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      weights[own_lane() + kLanes * j] = narrow<T>(z[j] * weigh);
    }
    const float shrink = rescale(next.m, state[round].m);
    float* sums = t.sums + row * t.stride;
    for (int column = own_lane(); column < a.dim; column += kLanes) sums[column] *= shrink;
    state[round] = next;
  }
}

// The warp's 16 rows of sums, 16 columns at a time, fetched and put back.
template <class T>
__device__ inline void add_values(const Tiles<T>& t, int first_row, int dim) {
  LeftPart<T> left[kKeyParts];
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
      RightPart<T, wmma::row_major> right;
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

  template <class T>
  __device__ explicit Place(const Attention<T>& a) {
    const std::int64_t tiles = (a.queries + kFlashTile - 1) / kFlashTile;
    const std::int64_t index = blockIdx.x;
    first_query = static_cast<int>(tiles - 1 - index % tiles) * kFlashTile;
    head = index / tiles % a.heads;
    batch = index / tiles / a.heads;
  }
};

template <class T>
__global__ void __launch_bounds__(kFlashThreads)
    flash_wmma_kernel(const __grid_constant__ Attention<T> a) {
  extern __shared__ __align__(128) std::byte memory[];
  const auto queries = static_cast<int>(a.queries);
  const auto all_keys = static_cast<int>(a.keys);
  const Tiles<T> t(memory, a.dim);
  const Place place(a);
  const std::int64_t kv_head = place.head / (a.heads / a.kv_heads);
  const auto q = matrix_of(a.q, place.batch, place.head, queries, a.dim);
  const auto k = matrix_of(a.k, place.batch, kv_head, all_keys, a.dim);
  const auto v = matrix_of(a.v, place.batch, kv_head, all_keys, a.dim);
  const auto load = [&](T* to, const Matrix<T>& from, int first) {
    load_tile<kFlashThreads>(to, t.stride, kFlashTile, a.dim, from, first, 0);
  };
  load(t.q, q, place.first_query);
  for (int i = static_cast<int>(threadIdx.x); i < kFlashTile * t.stride; i += kFlashThreads) {
    t.sums[i] = 0;
  }

  State<float> state[kRounds];
#pragma unroll
  for (State<float>& row : state) row = identity<float>();
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kRows;
  const int end = a.end(min(place.first_query + kFlashTile, queries) - 1);  // of the last query
  for (int first_key = 0; first_key < end; first_key += kFlashTile) {
    __syncthreads();  // the values of the tile before are no longer needed
    load(t.kv, k, first_key);
    __syncthreads();
    multiply_keys(t, first_row, a.dim);
    __syncthreads();  // the scores are there, and the keys are no longer needed
    load(t.kv, v, first_key);
    absorb(t, a, place.first_query, first_key, state);
    __syncthreads();
    add_values(t, first_row, a.dim);
  }
  __syncthreads();

#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int row = own_row(round);
    const int query = place.first_query + row;
    if (query >= queries) continue;
    const float by = factor(state[round], state[round].m);
    T* o = a.o.at(place.batch, place.head, query);
    for (int column = own_lane(); column < a.dim; column += kLanes) {
      o[column] = narrow<T>(t.sums[row * t.stride + column] * by);
    }
  }
}

}  // namespace

Status flash_wmma(const Call& call, const WalkLaunch& how) {
  const auto attend = [&]<class T>(const Attention<T>& a) {
    const auto kernel = flash_wmma_kernel<T>;
    Status status = allow_shared(reinterpret_cast<const void*>(kernel), how.shared_bytes);
    if (!status.ok()) return status;
    kernel<<<static_cast<unsigned>(how.blocks), kFlashThreads, how.shared_bytes,
             static_cast<cudaStream_t>(call.stream)>>>(a);
    return launch_status("attention's walk");
  };
  return std::visit(attend, call.attention);
}

}  // namespace onepass::ops::attention
