// attention/04_backward_naive: the gradients by their formulas, a launch per operation.
//
// Idea    with S = scale · q kᵀ, P = exp(S − lse), dP = do vᵀ and D = rowsum(do ∘ o)
//
//             dS = P ∘ (dP − D)    dv = Pᵀ do    dq = scale · dS k    dk = scale · dSᵀ q
//
//         Eight launches, of which five are products: D; S; P; dv; dP; dS; dq; dk.
// Versus  00_naive: P comes back from one number per query, the forward's lse: no maximum and no
//         sum to look for. Nothing is transposed in memory, and gradients are rounded where they
//         are made.
// Bytes   for each pair of a query and a key 34: S written and read, P written twice, as a factor
//         of dS in 32 bits and of dv in 16, dP written, both read, dS written, and what is rounded
//         read by the three last products.
// Order   every gradient is summed by one block, over keys, or over heads and queries, in order:
//         the same bits in every run.
// Limits  sm_80; f16, bf16; dims in multiples of 16 up to 256; tokens at multiples of 16 bytes;
//         scale, causal, grouped heads; up to 8 GiB of workspace. What a causal mask hides is
//         multiplied by 0: a NaN there is one in the gradients.
// Proof   `onepass verify attention_backward`; numbers: docs/walk/attention.md.

#include "core/try.hpp"
#include "ops/attention/walk/backward_facts.cuh"
#include "ops/attention/walk/backward_product.cuh"

namespace onepass::ops::attention {
namespace {

// In the workspace, a matrix per head: a row per query, a column per key.
template <class T>
struct PairMatrices {
  QueryFacts* facts;
  Tokens<float> scores;     // S, then P
  Tokens<float> d_weights;  // dP
  Tokens<T> weights;        // P, rounded
  Tokens<T> d_scores;       // dS, rounded
  int keys;                 // columns, filled up to whole tiles

  PairMatrices(const Backward<T>& a, std::byte* workspace) {
    const BackwardScratch s = backward_scratch_of(a);
    const auto matrix = [&]<class Value>(Tokens<Value>& to, std::size_t at) {
      to = {.data = reinterpret_cast<Value*>(workspace + at),
            .batch = a.heads * s.queries * s.keys,
            .head = s.queries * s.keys,
            .token = s.keys};
    };
    facts = reinterpret_cast<QueryFacts*>(workspace);
    matrix(scores, s.scores);
    matrix(d_weights, s.d_weights);
    matrix(weights, s.weights);
    matrix(d_scores, s.d_scores);
    keys = static_cast<int>(s.keys);
  }
};

// The query that a block has.
template <class T>
struct PairRow {
  std::int64_t batch, head, query;
  int end;  // the first key that it does not see

  __device__ explicit PairRow(const Backward<T>& a)
      : batch(blockIdx.x / a.queries / a.heads),
        head(blockIdx.x / a.queries % a.heads),
        query(blockIdx.x % a.queries),
        end(a.end(static_cast<int>(query))) {}
};

// P = exp(S − lse), 0 where the query does not see the key.
template <class T>
__global__ void __launch_bounds__(kPairThreads)
    make_weights(const __grid_constant__ Backward<T> a, const __grid_constant__ PairMatrices<T> m) {
  const PairRow<T> row(a);
  const QueryFacts facts = facts_at(m.facts, a, row.batch, row.head, row.query);
  float* scores = m.scores.at(row.batch, row.head, row.query);
  T* weights = m.weights.at(row.batch, row.head, row.query);
  for (int key = static_cast<int>(threadIdx.x); key < m.keys; key += kPairThreads) {
    const float weight = key < row.end ? weight_again(scores[key], a.scale, facts) : 0.F;
    scores[key] = weight;
    weights[key] = narrow<T>(weight);
  }
}

// dS = P ∘ (dP − D). Where the query does not see the key, dP may be anything.
template <class T>
__global__ void __launch_bounds__(kPairThreads)
    make_score_gradients(const __grid_constant__ Backward<T> a,
                         const __grid_constant__ PairMatrices<T> m) {
  const PairRow<T> row(a);
  const QueryFacts facts = facts_at(m.facts, a, row.batch, row.head, row.query);
  const float* weights = m.scores.at(row.batch, row.head, row.query);
  const float* d_weights = m.d_weights.at(row.batch, row.head, row.query);
  T* d_scores = m.d_scores.at(row.batch, row.head, row.query);
  for (int key = static_cast<int>(threadIdx.x); key < m.keys; key += kPairThreads) {
    const float d_score = key < row.end ? weights[key] * (d_weights[key] - facts.mean) : 0.F;
    d_scores[key] = narrow<T>(d_score);
  }
}

// left · rightᵀ: of each query's vector and each key's.
template <class T>
GradientProduct<T, float> pairs_of(const Backward<T>& a, const Tokens<const T>& queries,
                                   const Tokens<const T>& keys, const Tokens<float>& out) {
  const auto rows = static_cast<int>(a.queries);
  const auto columns = static_cast<int>(a.keys);
  return {.left = {queries, rows, a.dim},
          .right = {keys, columns, a.dim},
          .out = out,
          .rows = rows,
          .inner = a.dim,
          .columns = columns,
          .batch = a.batch,
          .heads = a.heads,
          .summed = 1,
          .shared = a.sharing(),
          .scale = 1};
}

// pairs · keys, summed over the keys: a gradient of each query.
template <class T>
GradientProduct<T, T> sums_of_keys(const Backward<T>& a, const PairMatrices<T>& m,
                                   const Tokens<T>& pairs, const Tokens<const T>& keys,
                                   const Tokens<T>& out, float scale) {
  const auto rows = static_cast<int>(a.queries);
  const auto inner = static_cast<int>(a.keys);
  return {.left = {pairs.to_read(), rows, m.keys},
          .right = {keys, inner, a.dim},
          .out = out,
          .rows = rows,
          .inner = inner,
          .columns = a.dim,
          .batch = a.batch,
          .heads = a.heads,
          .summed = 1,
          .shared = a.sharing(),
          .scale = scale};
}

// pairsᵀ · queries, summed over the queries of all heads that share a key: a gradient of each key.
template <class T>
GradientProduct<T, T> sums_of_queries(const Backward<T>& a, const PairMatrices<T>& m,
                                      const Tokens<T>& pairs, const Tokens<const T>& queries,
                                      const Tokens<T>& out, float scale) {
  const auto rows = static_cast<int>(a.keys);
  const auto inner = static_cast<int>(a.queries);
  return {.left = {pairs.to_read(), inner, m.keys},
          .right = {queries, inner, a.dim},
          .out = out,
          .rows = rows,
          .inner = inner,
          .columns = a.dim,
          .batch = a.batch,
          .heads = a.kv_heads,
          .summed = a.sharing(),
          .shared = 1,
          .scale = scale};
}

template <class T>
Status launch_pairs(void (*kernel)(Backward<T>, PairMatrices<T>), const Backward<T>& a,
                    const PairMatrices<T>& m, const WalkLaunch& how, void* stream) {
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads), 0,
           static_cast<cudaStream_t>(stream)>>>(a, m);
  return launch_status("attention's walk");
}

}  // namespace

Status backward_naive(const BackwardCall& call, const WalkLaunch& how) {
  const auto differentiate = [&]<class T>(const Backward<T>& a) {
    const PairMatrices<T> m(a, call.workspace);
    void* const stream = call.stream;
    ONEPASS_TRY(launch_facts(a, m.facts, stream));
    ONEPASS_TRY((launch_gradient<false, false>(pairs_of(a, a.q, a.k, m.scores), stream)));
    ONEPASS_TRY(launch_pairs<T>(make_weights<T>, a, m, how, stream));
    ONEPASS_TRY(
        (launch_gradient<true, true>(sums_of_queries(a, m, m.weights, a.d_o, a.d_v, 1.F), stream)));
    ONEPASS_TRY((launch_gradient<false, false>(pairs_of(a, a.d_o, a.v, m.d_weights), stream)));
    ONEPASS_TRY(launch_pairs<T>(make_score_gradients<T>, a, m, how, stream));
    ONEPASS_TRY((
        launch_gradient<false, true>(sums_of_keys(a, m, m.d_scores, a.k, a.d_q, a.scale), stream)));
    return launch_gradient<true, true>(sums_of_queries(a, m, m.d_scores, a.q, a.d_k, a.scale),
                                       stream);
  };
  return std::visit(differentiate, call.backward);
}

}  // namespace onepass::ops::attention
