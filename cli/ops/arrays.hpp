// The arrays of a call: their names, and what one of them is to its op.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cli/problem/guarded_array.hpp"
#include "onepass/tensor.hpp"

namespace onepass::cli {

namespace array {

enum Id : std::uint8_t {
  x,  // of a backward of y: y
  dy,
  forward_x,  // what softcapped gradients are taken at
  y,          // the output; in place there is none
  lse,
  loss,
  target,  // indices, or probabilities like x
  weight,
  dloss,
  scale,
  temperature,
  additive,
  boolean,
  lengths,
  indices,
  logprob,  // of the target, or of the token
  rank,
  valid,
  bias,
  seed,
  k,
  v,
  alibi,
  sinks,
  q_offsets,
  kv_offsets,
  pages,
  o,  // the result of the forward
  d_o,
  d_lse,
  d_k,
  d_v,
  d_sinks,
  d_additive,
};

}  // namespace array

// As the API calls them, in the order above.
inline constexpr std::array<std::string_view, array::d_additive + 1> kArrayNames = {"x",
                                                                                    "dy",
                                                                                    "forward x",
                                                                                    "y",
                                                                                    "lse",
                                                                                    "loss",
                                                                                    "target",
                                                                                    "weight",
                                                                                    "dloss",
                                                                                    "scale",
                                                                                    "temperature",
                                                                                    "mask.additive",
                                                                                    "mask.boolean",
                                                                                    "mask.lengths",
                                                                                    "indices",
                                                                                    "logprob",
                                                                                    "rank",
                                                                                    "valid",
                                                                                    "bias",
                                                                                    "seed",
                                                                                    "k",
                                                                                    "v",
                                                                                    "alibi",
                                                                                    "sinks",
                                                                                    "q_offsets",
                                                                                    "kv_offsets",
                                                                                    "pages",
                                                                                    "o",
                                                                                    "d_o",
                                                                                    "d_lse",
                                                                                    "d_k",
                                                                                    "d_v",
                                                                                    "d_sinks",
                                                                                    "d_additive"};

inline constexpr auto kAllArrays = [] {
  std::array<array::Id, kArrayNames.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<array::Id>(i);
  return all;
}();

namespace array {
constexpr std::string_view name(Id id) { return kArrayNames[id]; }
}  // namespace array

// What an op that gives several gradients writes beside the first, which is y.
inline constexpr array::Id kGradients[] = {array::d_k, array::d_v, array::d_sinks,
                                           array::d_additive};

// updated: an output that is added to.
enum class Access : std::uint8_t { input, output, in_place, updated };

constexpr bool keeps_values(Access access) {
  return access == Access::in_place || access == Access::updated;
}

// One array of a case: all that there is to say of it but its values.
struct ArraySpec {
  array::Id id;
  Access access;
  DType dtype;
  std::vector<std::int64_t> shape;
  Layout layout = {};
  bool token_major = false;  // the last dimension but two lies inside the last but one
};

// A tensor for each array, absent where the case has none.
using Tensors = std::array<Tensor, kArrayNames.size()>;

// Where the op writes: y, or in place its input.
inline const Tensor& output_of(const Tensors& t) {
  if (t[array::y].present()) return t[array::y];
  return t[array::dy].present() ? t[array::dy] : t[array::x];
}

}  // namespace onepass::cli
