// The launches of the walk through attention's backward, as pure functions.
#pragma once

#include <string>

#include "ops/attention/walk/backward_scratch.hpp"
#include "ops/attention/walk/plan.hpp"

namespace onepass::ops::attention::geometry {

// ---- 04: scores in memory -----------------------------------------------------------------------

// Scores and weights, twice each, where whole numbers might overflow.
constexpr double pair_bytes(const AttentionFacts& a) { return 2 * square_bytes(a); }

// Facts are written once and read twice.
constexpr double moved_facts(const AttentionFacts& a) {
  return 3.0 * sizeof(QueryFacts) * static_cast<double>(a.batch * a.heads) *
         static_cast<double>(a.queries);
}

// The launches over rows of scores; those of the products follow from the workspace.
inline WalkLaunch backward_naive(const Problem& p, const Machine&) {
  const AttentionFacts& a = p.attention;
  const double pairs = static_cast<double>(p.rows) * static_cast<double>(a.keys);
  return {.blocks = p.rows,
          .threads = kPairThreads,
          .scratch_bytes = backward_scratch_of(a).bytes,
          .extra_bytes = 34 * pairs + moved_facts(a)};
}

// ---- 05: scores in shared memory ----------------------------------------------------------------

// Two vectors of each token, of the block's own and of those that go by; S and dP, P and dS; facts.
constexpr std::size_t backward_wmma_bytes(int dim) {
  const auto row = static_cast<std::size_t>(dim + kPad);
  return kBackwardTile * row * (4 * 2) +
         std::size_t{kBackwardTile} * (kBackwardTile + kPad) * (2 * 4 + 2 * 2) +
         kBackwardTile * sizeof(QueryFacts);
}

// The blocks of both kernels.
inline WalkLaunch backward_wmma(const Problem& p, const Machine&) {
  const AttentionFacts& a = p.attention;
  return {.blocks = key_tiles_of(a) + query_tiles_of(a),
          .threads = kBackwardThreads,
          .shared_bytes = backward_wmma_bytes(a.dim),
          .scratch_bytes = facts_bytes(a),
          .extra_bytes = moved_facts(a)};
}

// ---- limits -------------------------------------------------------------------------------------

// Of both.
inline std::string refuse_backward(const Problem& p, const Machine& m) {
  if (std::string no = refuse_walk(p, m); !no.empty()) return no;
  const AttentionFacts& a = p.attention;
  if (p.mixed_inputs) return "o and d_o have the dtype of q";
  if (a.d_lse) return "it takes no gradient of lse";
  if (a.accumulates) return "it overwrites the gradients";
  if (a.queries == 0 || a.heads == 0 || a.batch == 0) return "it needs at least one query";
  return {};
}

// With so little workspace no launch has more blocks than it may: a query takes 768 bytes at least,
// a tile of a product 48 KiB.
inline std::string refuse_backward_naive(const Problem& p, const Machine& m) {
  if (std::string no = refuse_backward(p, m); !no.empty()) return no;
  const bool fits = pair_bytes(p.attention) <= static_cast<double>(kMostScratch) &&
                    backward_scratch_of(p.attention).bytes <= kMostScratch;
  return fits ? "" : "its scores in memory would take more than 8 GiB";
}

inline std::string refuse_backward_wmma(const Problem& p, const Machine& m) {
  if (std::string no = refuse_backward(p, m); !no.empty()) return no;
  const WalkLaunch launch = backward_wmma(p, m);
  if (launch.blocks > kMost32 || ceil_div(p.rows, kFactsThreads / 32) > kMost32) {
    return "it has more blocks than a launch";
  }
  if (launch.shared_bytes > static_cast<std::size_t>(m.gpu.block_shared)) {
    return "its tiles do not fit into this GPU's shared memory";
  }
  return {};
}

}  // namespace onepass::ops::attention::geometry
