// attention/05_backward_wmma: weights made again, never in memory.
//
// Idea    a block owns 64 keys, with their dk and dv, and goes through the queries that see one of
//         them, 64 at a time; then a block owns 64 queries, with their dq, and goes through the
//         keys that they see. Both make the tile's weights from q, k and lse, and their gradients
//         from do, v and D.
// Versus  04_backward_naive: three launches in place of eight, and nothing as large as queries ×
//         keys anywhere. S and dP are computed twice, once for the keys and once for the queries:
//         seven products in place of five. Tiles that a causal mask hides altogether are not.
//         03_flash_wmma: no maximum, so no sum is ever rescaled, and sums stay in fragments to the
//         end. That their layout is unknown matters for scores only.
// Bytes   each tile of keys reads q and do of all queries that see it, each tile of queries k and v
//         of all keys that it sees, mostly from L2. In shared memory a pair is written as S and dP,
//         read, written as P and dS, and read.
// Order   every gradient has one owner, which sums in order: the same bits in every run.
// Limits  sm_80; f16, bf16; dims in multiples of 16 up to 256 as far as the tiles fit into shared
//         memory; tokens at multiples of 16 bytes; scale, causal, grouped heads.
// Proof   `onepass verify attention_backward`; numbers: docs/walk/attention.md.

#include "core/try.hpp"
#include "ops/attention/walk/backward_facts.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kSide = kBackwardTile;
constexpr int kPairStride = kSide + kPad;
// Eight warps: two for every 16 tokens of the block's own. Each of the two has the pairs with half
// of the tokens that go by, and half of the columns of the sums.
static_assert(kBackwardThreads / 32 * 16 == 2 * kSide);
constexpr int kHalf = kSide / 2;

// Two vectors of each of 64 tokens: k and v of keys, q and do of queries. Products of the first are
// scores, those of the second gradients of weights.
template <class T>
struct Vectors {
  T *first, *second;
};

// A block's tiles in shared memory. Those of pairs have a row per token of its own and a column per
// token of the others.
template <class T>
struct BackwardTiles {
  int dim, stride;
  Vectors<T> own, other;
  float *scores, *d_weights;
  T *weights, *d_scores;
  QueryFacts* facts;

  __device__ BackwardTiles(std::byte* memory, int columns) : dim(columns), stride(columns + kPad) {
    const int vectors = kSide * stride;
    constexpr int kPairs = kSide * kPairStride;
    own.first = reinterpret_cast<T*>(memory);
    own.second = own.first + vectors;
    other.first = own.second + vectors;
    other.second = other.first + vectors;
    scores = reinterpret_cast<float*>(other.second + vectors);
    d_weights = scores + kPairs;
    weights = reinterpret_cast<T*>(d_weights + kPairs);
    d_scores = weights + kPairs;
    facts = reinterpret_cast<QueryFacts*>(d_scores + kPairs);
  }

  // The sums on their way out, in place of the vectors that went by: 2 × 16 bits are a float.
  __device__ float* sums() const { return reinterpret_cast<float*>(other.first); }
};

__device__ inline int warp_row() { return static_cast<int>(threadIdx.x) / 64 * 16; }
__device__ inline int warp_half() { return static_cast<int>(threadIdx.x) / 32 % 2; }

// Zeros past the last token.
template <class T>
__device__ inline void load_vectors(const Vectors<T>& to, const BackwardTiles<T>& t,
                                    const Matrix<T>& first, const Matrix<T>& second, int from) {
  load_tile<kBackwardThreads>(to.first, t.stride, kSide, t.dim, first, from, 0);
  load_tile<kBackwardThreads>(to.second, t.stride, kSide, t.dim, second, from, 0);
}

template <class T>
__device__ inline void load_facts(const BackwardTiles<T>& t, const Backward<T>& a,
                                  QueryFacts* facts, std::int64_t batch, std::int64_t head,
                                  int first_query) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kSide && first_query + i < a.queries) {
    t.facts[i] = facts_at(facts, a, batch, head, first_query + i);
  }
}

// The warp's 16 × 32 of own · otherᵀ.
template <class T>
__device__ inline void multiply_pairs(float* pairs, const T* own, const T* other,
                                      const BackwardTiles<T>& t) {
  constexpr int kParts = kHalf / 16;
  const int first = warp_half() * kHalf;
  SumPart s[kParts];
#pragma unroll
  for (SumPart& part : s) wmma::fill_fragment(part, 0.F);
  for (int column = 0; column < t.dim; column += 16) {
    LeftPart<T> left;
    load_part(left, own + warp_row() * t.stride + column, t.stride);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      RightPart<T, wmma::col_major> right;
      load_part(right, other + (first + 16 * i) * t.stride + column, t.stride);
      wmma::mma_sync(s[i], left, right, s[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    wmma::store_matrix_sync(pairs + warp_row() * kPairStride + first + 16 * i, s[i], kPairStride,
                            wmma::mem_row_major);
  }
}

// Scores become weights, their gradients those of scores, both rounded. The block's own tokens are
// keys or queries.
template <bool OwnKeys, class T>
__device__ inline void weigh_pairs(const BackwardTiles<T>& t, const Backward<T>& a, int first_own,
                                   int first_other) {
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide; i += kBackwardThreads) {
    const int own = i / kSide;
    const int other = i % kSide;
    const int at = own * kPairStride + other;
    const int query = OwnKeys ? other : own;  // of its tile
    const int first_query = OwnKeys ? first_other : first_own;
    const int key = OwnKeys ? first_own + own : first_other + other;
    float weight = 0, d_score = 0;
    if (first_query + query < a.queries && key < a.end(first_query + query)) {
      const QueryFacts facts = t.facts[query];
      weight = weight_again(t.scores[at], a.scale, facts);
      d_score = weight * (t.d_weights[at] - facts.mean);
    }
    t.weights[at] = narrow<T>(weight);
    t.d_scores[at] = narrow<T>(d_score);
  }
}

// The pairs of the block's own tokens with a tile of others: weights and gradients of scores.
template <bool OwnKeys, class T>
__device__ inline void make_pairs(const BackwardTiles<T>& t, const Backward<T>& a, int first_own,
                                  int first_other) {
  multiply_pairs(t.scores, t.own.first, t.other.first, t);
  multiply_pairs(t.d_weights, t.own.second, t.other.second, t);
  __syncthreads();
  weigh_pairs<OwnKeys>(t, a, first_own, first_other);
  __syncthreads();
}

// The sums that a warp has of its 16 tokens: half of the columns, in fragments, from the first tile
// to the last.
template <int Parts>
struct Sums {
  SumPart parts[Parts];

  __device__ Sums() {
#pragma unroll
    for (SumPart& part : parts) wmma::fill_fragment(part, 0.F);
  }

  __device__ static int column(int part) { return (warp_half() * Parts + part) * 16; }

  // pairs · vectors, summed over the tokens that go by.
  template <class T>
  __device__ void add(const T* pairs, const T* vectors, const BackwardTiles<T>& t) {
    for (int at = 0; at < kSide; at += 16) {
      LeftPart<T> left;
      load_part(left, pairs + warp_row() * kPairStride + at, kPairStride);
#pragma unroll
      for (int i = 0; i < Parts; ++i) {
        if (column(i) >= t.dim) break;
        RightPart<T, wmma::row_major> right;
        load_part(right, vectors + at * t.stride + column(i), t.stride);
        wmma::mma_sync(parts[i], left, right, parts[i]);
      }
    }
  }

  // To a head's tokens from `first` on, of which there are `count`.
  template <class T>
  __device__ void write(T* to, std::int64_t stride, int first, int count, float scale,
                        const BackwardTiles<T>& t) const {
    __syncthreads();  // what lies there is no longer needed
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      if (column(i) >= t.dim) break;
      wmma::store_matrix_sync(t.sums() + warp_row() * t.stride + column(i), parts[i],
                              static_cast<unsigned>(t.stride), wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSide * t.dim; i += kBackwardThreads) {
      const int row = i / t.dim;
      const int c = i % t.dim;
      if (first + row >= count) break;
      to[(first + row) * stride + c] = narrow<T>(t.sums()[row * t.stride + c] * scale);
    }
  }
};

// A block owns a tile of keys.
template <class T, int Parts>
__global__ void __launch_bounds__(kBackwardThreads)
    own_keys(const __grid_constant__ Backward<T> a, QueryFacts* facts) {
  extern __shared__ __align__(128) std::byte memory[];
  const BackwardTiles<T> t(memory, a.dim);
  const auto queries = static_cast<int>(a.queries);
  const auto keys = static_cast<int>(a.keys);
  const std::int64_t tiles = (a.keys + kSide - 1) / kSide;
  const int first_key = static_cast<int>(blockIdx.x % tiles) * kSide;
  const std::int64_t kv_head = blockIdx.x / tiles % a.kv_heads;
  const std::int64_t batch = blockIdx.x / tiles / a.kv_heads;
  load_vectors(t.own, t, matrix_of(a.k, batch, kv_head, keys, a.dim),
               matrix_of(a.v, batch, kv_head, keys, a.dim), first_key);

  Sums<Parts> d_k, d_v;
  const int begin = a.first_query(first_key) / kSide * kSide;
  for (std::int64_t head = kv_head * a.sharing(); head < (kv_head + 1) * a.sharing(); ++head) {
    const auto q = matrix_of(a.q, batch, head, queries, a.dim);
    const auto d_o = matrix_of(a.d_o, batch, head, queries, a.dim);
    for (int first_query = begin; first_query < queries; first_query += kSide) {
      __syncthreads();  // the tile before is no longer needed
      load_vectors(t.other, t, q, d_o, first_query);
      load_facts(t, a, facts, batch, head, first_query);
      __syncthreads();
      make_pairs<true>(t, a, first_key, first_query);
      d_v.add(t.weights, t.other.second, t);
      d_k.add(t.d_scores, t.other.first, t);
    }
  }
  d_v.write(a.d_v.at(batch, kv_head, 0), a.d_v.token, first_key, keys, 1.F, t);
  d_k.write(a.d_k.at(batch, kv_head, 0), a.d_k.token, first_key, keys, a.scale, t);
}

// A block owns a tile of queries: those that see the most keys first, as in 03.
template <class T, int Parts>
__global__ void __launch_bounds__(kBackwardThreads)
    own_queries(const __grid_constant__ Backward<T> a, QueryFacts* facts) {
  extern __shared__ __align__(128) std::byte memory[];
  const BackwardTiles<T> t(memory, a.dim);
  const auto queries = static_cast<int>(a.queries);
  const auto keys = static_cast<int>(a.keys);
  const std::int64_t tiles = (a.queries + kSide - 1) / kSide;
  const int first_query = static_cast<int>(tiles - 1 - blockIdx.x % tiles) * kSide;
  const std::int64_t head = blockIdx.x / tiles % a.heads;
  const std::int64_t batch = blockIdx.x / tiles / a.heads;
  load_vectors(t.own, t, matrix_of(a.q, batch, head, queries, a.dim),
               matrix_of(a.d_o, batch, head, queries, a.dim), first_query);
  load_facts(t, a, facts, batch, head, first_query);

  Sums<Parts> d_q;
  const auto k = matrix_of(a.k, batch, head / a.sharing(), keys, a.dim);
  const auto v = matrix_of(a.v, batch, head / a.sharing(), keys, a.dim);
  const int end = a.end(min(first_query + kSide, queries) - 1);  // of the last query
  for (int first_key = 0; first_key < end; first_key += kSide) {
    __syncthreads();
    load_vectors(t.other, t, k, v, first_key);
    __syncthreads();
    make_pairs<false>(t, a, first_query, first_key);
    d_q.add(t.d_scores, t.other.first, t);
  }
  d_q.write(a.d_q.at(batch, head, 0), a.d_q.token, first_query, queries, a.scale, t);
}

template <class T>
Status launch_owners(void (*kernel)(Backward<T>, QueryFacts*), std::int64_t blocks,
                     const Backward<T>& a, const BackwardCall& call, const WalkLaunch& how) {
  ONEPASS_TRY(allow_shared(reinterpret_cast<const void*>(kernel), how.shared_bytes));
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(how.threads), how.shared_bytes,
           static_cast<cudaStream_t>(call.stream)>>>(a,
                                                     reinterpret_cast<QueryFacts*>(call.workspace));
  return launch_status("attention's walk");
}

// Fragments of a sum that a warp has, so that all warps have all columns of up to 32 of them.
template <int Parts, class T>
Status launch_both(const Backward<T>& a, const BackwardCall& call, const WalkLaunch& how) {
  ONEPASS_TRY(launch_owners<T>(own_keys<T, Parts>, key_tiles_of(a), a, call, how));
  return launch_owners<T>(own_queries<T, Parts>, query_tiles_of(a), a, call, how);
}

}  // namespace

Status backward_wmma(const BackwardCall& call, const WalkLaunch& how) {
  const auto differentiate = [&]<class T>(const Backward<T>& a) {
    ONEPASS_TRY(launch_facts(a, reinterpret_cast<QueryFacts*>(call.workspace), call.stream));
    return a.dim <= 64    ? launch_both<2>(a, call, how)
           : a.dim <= 128 ? launch_both<4>(a, call, how)
                          : launch_both<8>(a, call, how);
  };
  return std::visit(differentiate, call.backward);
}

}  // namespace onepass::ops::attention
