// What the backward's steps keep in the workspace, and where it begins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/integers.hpp"
#include "ops/attention/walk/backward.hpp"

namespace onepass::ops::attention {

template <class Sizes>
constexpr std::size_t facts_bytes(const Sizes& a) {
  return static_cast<std::size_t>(a.batch * a.heads * a.queries) * sizeof(QueryFacts);
}

// Of 04: the facts of all queries, then per head its scores, which become weights (f32), the
// gradients of weights (f32), the weights rounded and the gradients of scores (16 bits). Rows and
// columns are filled up to whole tiles.
struct BackwardScratch {
  std::int64_t queries, keys;
  std::size_t scores, d_weights, weights, d_scores, bytes;
};

template <class Sizes>
constexpr BackwardScratch backward_scratch_of(const Sizes& a) {
  constexpr std::int64_t kLine = 256;
  BackwardScratch s{};
  s.queries = round_up(a.queries, kTile);
  s.keys = round_up(a.keys, kTile);
  const auto pairs = static_cast<std::size_t>(a.batch * a.heads * s.queries * s.keys);
  s.scores = static_cast<std::size_t>(round_up(static_cast<std::int64_t>(facts_bytes(a)), kLine));
  s.d_weights = s.scores + pairs * 4;
  s.weights = s.d_weights + pairs * 4;
  s.d_scores = s.weights + pairs * 2;
  s.bytes = s.d_scores + pairs * 2;
  return s;
}

}  // namespace onepass::ops::attention
