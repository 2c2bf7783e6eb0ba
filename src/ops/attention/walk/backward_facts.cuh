// What 04 and 05 have in common: the facts of each query, by a launch of its own, and a weight made
// again from them.
#pragma once

#include "core/exponential.hpp"
#include "core/state.hpp"
#include "merge/operators.hpp"
#include "merge/warp.cuh"
#include "ops/attention/walk/backward_scratch.hpp"
#include "ops/attention/walk/wmma_gemm.cuh"

namespace onepass::ops::attention {

// Of a batch × heads × queries.
template <class T>
__device__ inline QueryFacts& facts_at(QueryFacts* facts, const Backward<T>& a, std::int64_t batch,
                                       std::int64_t head, std::int64_t query) {
  return facts[(batch * a.heads + head) * a.queries + query];
}

// A query that sees nothing has an lse of −inf: against +inf all weights are 0. One of +inf is that
// of an infinite or NaN sum: its weights are NaN.
__device__ inline float exponent_of_lse(float lse) {
  if (lse == minus_infinity<float>()) return -lse;
  return lse == -minus_infinity<float>() ? lse - lse : lse;
}

// exp(z − lse) = exp(z) / Σ exp: the forward's weight, without its maximum and its sum. None is
// above 1, but z and lse are rounded. A NaN stays one.
__device__ inline float weight_again(float score, float scale, const QueryFacts& row) {
  const float x = fmaf(score, scale, -row.lse);
  return exponential(x > 0 ? 0.F : x);
}

// D = rowsum(do ∘ o). A warp per query.
template <class T>
__global__ void __launch_bounds__(kFactsThreads)
    find_facts(const __grid_constant__ Backward<T> a, QueryFacts* facts) {
  const std::int64_t row =
      (std::int64_t{blockIdx.x} * kFactsThreads + static_cast<int>(threadIdx.x)) / 32;
  if (row >= a.rows()) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t query = row % a.queries;
  const std::int64_t head = row / a.queries % a.heads;
  const std::int64_t batch = row / a.queries / a.heads;
  const T* o = a.o.at(batch, head, query);
  const T* d_o = a.d_o.at(batch, head, query);
  float sum = 0;
  for (int c = lane; c < a.dim; c += 32) sum = fmaf(widen(o[c]), widen(d_o[c]), sum);
  sum = warp_fold(sum, Add<float>());
  if (lane == 0) {
    facts_at(facts, a, batch, head, query) = {exponent_of_lse(a.lse.at(batch, head, query)), sum};
  }
}

template <class T>
Status launch_facts(const Backward<T>& a, QueryFacts* facts, void* stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(a.rows(), kFactsThreads / 32));
  find_facts<T><<<blocks, kFactsThreads, 0, static_cast<cudaStream_t>(stream)>>>(a, facts);
  return launch_status("attention's walk");
}

}  // namespace onepass::ops::attention
