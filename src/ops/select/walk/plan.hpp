// The launches of the walk through top-k, as pure functions.
#pragma once

#include <string>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "ops/select/walk/walk.hpp"
#include "rows/limits.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::select {
namespace geometry {

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

// ---- limits -------------------------------------------------------------------------------------

inline std::string refuse_walk(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in != p.out || p.in == DType::f64) return "it takes f32, f16 and bf16, and gives the same";
  if (!p.textbook) return "it gives probabilities, the largest first, and i64 indices";
  if (p.k > kMostK) return "it selects at most " + std::to_string(kMostK);
  if (p.rows > kMostBlocks || p.cols > kMostBlocks)
    return "it counts rows and columns with 31 bits";
  if (!p.unit_stride) return "its rows must be dense";
  if (!p.even_rows) return "its rows must lie at one stride";
  return refuse_options(p, m);
}

}  // namespace geometry
}  // namespace onepass::ops::select
