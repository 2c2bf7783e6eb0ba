// The launches of the walk through topk, as pure functions. What ships has its own in ../gpu.
#pragma once

#include "ops/select/gpu/policy.hpp"
#include "rows/cpu/limits.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::topk {

// A block per row.
struct WalkLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t scratch_bytes = 0;
  bool resident = false;  // x is read from memory once

  Plan plan() const;
  bool operator==(const WalkLaunch&) const = default;
};

namespace geometry {

// Keys that a thread keeps of its slice. A list in registers takes two a key, and each new key passes all of them.
inline constexpr int kListKeys = 16;

// Blocks of threads with lists: their registers are full, and every list is one more to merge.
inline constexpr int kListThreads = 256;
inline constexpr int kListWarps = kListThreads / kWarp;

// Blocks of threads that only look.
inline constexpr int kWideThreads = 1024;

// Keys of a row that a block has room for.
inline constexpr int kMostK = 256;

// The probabilities of all rows, as f32.
constexpr std::size_t probability_bytes(const Problem& p) {
  return static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols) * sizeof(float);
}

inline WalkLaunch unfused(const Problem& p, const Machine&) {
  return {
      .blocks = blocks_for(p.rows), .threads = kWideThreads, .scratch_bytes = probability_bytes(p)};
}

inline WalkLaunch lists(const Problem& p, const Machine&) {
  return {.blocks = blocks_for(p.rows), .threads = kListThreads};
}

inline WalkLaunch lists_in_one_read(const Problem& p, const Machine&) {
  return {.blocks = blocks_for(p.rows), .threads = kListThreads, .resident = true};
}

// ---- limits ---------------------------------------------------------------------------------------

inline std::string refuse_walk(const Problem& p, const Machine& m) {
  if (std::string refusal = gpu_choose::refuse_any_k(p, m); !refusal.empty()) return refusal;
  if (p.k > kMostK) return "it chooses at most " + std::to_string(kMostK);
  if (!p.unit_stride) return "its rows must be dense";
  if (!p.even_rows) return "its rows must lie at one stride";
  return refuse_options(p, m);
}

// It has probabilities, and nothing beside them.
inline std::string refuse_unfused(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_walk(p, m); !refusal.empty()) return refusal;
  return p.weighs ? "" : "it gives probabilities";
}

}  // namespace geometry
}  // namespace onepass::ops::topk
