// The launches of the walk through attention, as pure functions.
#pragma once

#include <string>

#include "core/integers.hpp"
#include "core/machine.hpp"
#include "core/problem.hpp"
#include "ops/attention/sight.hpp"
#include "ops/attention/walk/scratch.hpp"

namespace onepass::ops::attention {

namespace geometry {

// ---- 00 to 02: scores in memory -----------------------------------------------------------------

// What a walk through small shapes needs, and no more: 8 GiB are one head of 37,000 tokens.
inline constexpr std::size_t kMostScratch = std::size_t{8} << 30;

// Scores and weights alone, where whole numbers might overflow.
constexpr double square_bytes(const AttentionFacts& a) {
  return 6.0 * static_cast<double>(a.batch) * static_cast<double>(a.heads) *
         static_cast<double>(round_up(a.queries, kTile)) *
         static_cast<double>(round_up(a.keys, kTile));
}

// What they move beside q, k, v and o: kᵀ, the sums, and so many bytes for each pair of a
// query and a key.
constexpr double moved_bytes(const AttentionFacts& a, double pair) {
  const double keys = static_cast<double>(a.batch * a.kv_heads) * static_cast<double>(a.keys);
  const double queries = static_cast<double>(a.batch * a.heads) * static_cast<double>(a.queries);
  return pair * queries * static_cast<double>(a.keys) + a.dim * (4 * keys + 8 * queries);
}

// Of 00 a score is written and read three times as f32, then once in 16 bits; of the
// others once each.
constexpr double naive_bytes(const AttentionFacts& a) { return moved_bytes(a, 28); }
constexpr double fused_bytes(const AttentionFacts& a) { return moved_bytes(a, 12); }

// The launches over rows of scores; those of the products follow from the workspace.
inline WalkLaunch rows_in_memory(const Problem& p, int threads, double extra_bytes) {
  return {.blocks = p.rows,
          .threads = threads,
          .scratch_bytes = scratch_of(p.attention).bytes,
          .extra_bytes = extra_bytes};
}

inline WalkLaunch naive(const Problem& p, const Machine&) {
  return rows_in_memory(p, kWideThreads, naive_bytes(p.attention));
}
inline WalkLaunch fused(const Problem& p, const Machine&) {
  return rows_in_memory(p, kWideThreads, fused_bytes(p.attention));
}
inline WalkLaunch tuned(const Problem& p, const Machine&) {
  return rows_in_memory(p, kTunedThreads, fused_bytes(p.attention));
}

// ---- 03: scores in shared memory ----------------------------------------------------------------

// Queries, keys or values, sums; scores and weights.
constexpr std::size_t flash_bytes(int dim) {
  const auto row = static_cast<std::size_t>(dim + kPad);
  return kFlashTile * row * (2 + 2 + 4) + std::size_t{kFlashTile} * (kFlashTile + kPad) * (4 + 2);
}

inline WalkLaunch flash(const Problem& p, const Machine&) {
  const AttentionFacts& a = p.attention;
  return {.blocks = a.batch * a.heads * ceil_div(a.queries, kFlashTile),
          .threads = kFlashThreads,
          .shared_bytes = flash_bytes(a.dim)};
}

// ---- limits -------------------------------------------------------------------------------------

// Of all four, and of the backward's.
inline std::string refuse_walk(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (m.gpu.sm < 80) return "it needs sm_80";
  if (p.in != p.out || (p.in != DType::f16 && p.in != DType::bf16)) {
    return "it takes f16 and bf16, and gives the same";
  }
  if (p.wants_lse) return "it writes no lse";
  if (!a.one_dim()) return "its values have the dim of its keys";
  if (a.dim % 16 != 0 || a.dim > 256) return "its dims are multiples of 16, up to 256";
  if (!a.aligned) return "its tokens must begin at multiples of 16 bytes";
  if (a.lengths || a.q_offsets || a.kv_offsets || a.page > 0) {
    return "its sequences are all alike, and not in pages";
  }
  if (a.additive || a.boolean || a.alibi || a.sinks || a.softcap) {
    return "it takes no mask tensor, alibi, sinks or softcap";
  }
  if (a.window_left >= 0 || a.window_right >= 0) return "it takes no window";
  if (a.split > 0) return "it does not cut keys";
  if (a.keys == 0) return "it needs at least one key";
  if (a.queries > kMost32 || a.keys > kMost32) {
    return "its queries and keys are counted with 31 bits";
  }
  return {};
}

// With so little workspace no launch has more blocks than it may: a row of scores takes 384 bytes
// at least, a tile of kᵀ that a block turns 1024.
inline std::string refuse_in_memory(const Problem& p, const Machine& m) {
  if (std::string no = refuse_walk(p, m); !no.empty()) return no;
  const bool fits = square_bytes(p.attention) <= static_cast<double>(kMostScratch) &&
                    scratch_of(p.attention).bytes <= kMostScratch;
  return fits ? "" : "its scores in memory would take more than 8 GiB";
}

inline std::string refuse_flash(const Problem& p, const Machine& m) {
  if (std::string no = refuse_walk(p, m); !no.empty()) return no;
  const WalkLaunch launch = flash(p, m);
  if (launch.blocks > kMost32) return "it has more blocks than a launch";
  if (launch.shared_bytes > static_cast<std::size_t>(m.gpu.block_shared)) {
    return "its tiles do not fit into this GPU's shared memory";
  }
  return {};
}

}  // namespace geometry
}  // namespace onepass::ops::attention
