// The matrices of 00 to 02 in the workspace: where they begin and how large they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/integers.hpp"
#include "ops/attention/walk/walk.hpp"

namespace onepass::ops::attention {

// kᵀ per kv head; per head its scores (f32), their weights (16 bits) and its sums (f32). Rows and
// columns are filled up to whole tiles, so that a product stores without looking.
struct Scratch {
  std::int64_t queries, keys, columns;                   // filled up; columns are those of the sums
  std::size_t transposed, scores, weights, sums, bytes;  // where they begin; all together
};

// Of AttentionFacts or an Attention: both say how large things are.
template <class Sizes>
constexpr Scratch scratch_of(const Sizes& a) {
  Scratch s{};
  s.queries = round_up(a.queries, kTile);
  s.keys = round_up(a.keys, kTile);
  s.columns = round_up(a.dim, kTile);
  const auto bytes = [](std::int64_t matrices, std::int64_t elements, std::int64_t width) {
    return static_cast<std::size_t>(matrices * elements * width);
  };
  const std::int64_t heads = a.batch * a.heads;
  s.scores = s.transposed + bytes(a.batch * a.kv_heads, a.dim * s.keys, 2);
  s.weights = s.scores + bytes(heads, s.queries * s.keys, 4);
  s.sums = s.weights + bytes(heads, s.queries * s.keys, 2);
  s.bytes = s.sums + bytes(heads, s.queries * s.columns, 4);
  return s;
}

}  // namespace onepass::ops::attention
