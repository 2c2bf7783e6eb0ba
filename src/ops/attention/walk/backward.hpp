// The walk goes on through attention's backward, 04_backward_naive.cu and 05_backward_wmma.cu: what
// such a step is called with, and the steps in reading order.
#pragma once

#include <cstdint>
#include <variant>

#include "onepass/tensor.hpp"
#include "ops/attention/walk/walk.hpp"

namespace onepass::ops::attention {

// The forward's lse of each query, f32 or f64.
struct Lse {
  const void* data;
  DType dtype;
  std::int64_t batch, head, token;

  ONEPASS_HD float at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    const std::int64_t i = b * batch + h * head + t * token;
    return dtype == DType::f64 ? static_cast<float>(static_cast<const double*>(data)[i])
                               : static_cast<const float*>(data)[i];
  }
};

// The gradients of q, k and v, given that of o and what the forward has left: o, which is only
// read here, and lse.
template <class T>
struct Backward : Attention<T> {
  Tokens<const T> d_o;
  Lse lse;
  Tokens<T> d_q, d_k, d_v;

  ONEPASS_HD std::int64_t rows() const { return this->batch * this->heads * this->queries; }
  ONEPASS_HD std::int64_t sharing() const { return this->heads / this->kv_heads; }

  // The first query that sees a key.
  ONEPASS_HD int first_query(int key) const {
    const std::int64_t own = key + this->queries - this->keys;
    return !this->causal || own < 0 ? 0 : static_cast<int>(own);
  }
};

struct BackwardCall {
  std::variant<Backward<F16>, Backward<BF16>> backward;
  std::byte* workspace;
  void* stream;
};

// What all of a query's weights and their gradients need of it.
struct QueryFacts {
  float lse;   // what a logit is exponentiated against
  float mean;  // D, the mean gradient of the weights: Σ do · o
};

inline constexpr int kFactsThreads = 256;  // a warp per query
inline constexpr int kPairThreads = 256;   // in 04, of a block that has a row of scores
inline constexpr int kBackwardThreads = 256;
inline constexpr int kBackwardTile = 64;  // of queries and of keys

// Tiles of 05, of an Attention or of AttentionFacts.
template <class Sizes>
constexpr std::int64_t key_tiles_of(const Sizes& a) {
  return a.batch * a.kv_heads * ((a.keys + kBackwardTile - 1) / kBackwardTile);
}
template <class Sizes>
constexpr std::int64_t query_tiles_of(const Sizes& a) {
  return a.batch * a.heads * ((a.queries + kBackwardTile - 1) / kBackwardTile);
}

Status backward_naive(const BackwardCall& call, const WalkLaunch& launch);
Status backward_wmma(const BackwardCall& call, const WalkLaunch& launch);

}  // namespace onepass::ops::attention
