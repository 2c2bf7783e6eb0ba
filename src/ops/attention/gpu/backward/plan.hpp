// The launches of attention's backward on a GPU, as pure functions of problem and machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "ops/attention/gpu/plan.hpp"

namespace onepass::gpu_attention {

// What every row keeps between the kernels: its lse and its mean gradient.
inline constexpr std::size_t kBackwardRowBytes = 8;

constexpr std::size_t backward_scratch_bytes(const AttentionFacts& a) {
  const std::int64_t rows = (a.q_offsets ? 1 : a.batch) * a.heads * a.queries;
  return static_cast<std::size_t>(rows) * kBackwardRowBytes;
}

// A warp per row for dq, a warp per key for dk and dv.
struct BackwardSimtLaunch {
  int columns = 0;  // of each operand, that a lane has: what the kernels are compiled for
  std::int64_t query_blocks = 0, key_blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  std::size_t scratch_bytes = 0;

  Plan plan() const;
  bool operator==(const BackwardSimtLaunch&) const = default;
};

// Tiles of rows for dq, tiles of keys for dk and dv. `dim` is what the kernels are compiled for.
struct BackwardFlashLaunch {
  int dim = 0;
  bool general = false;  // by the kernels that take every option, of either dtype
  std::int64_t query_blocks = 0, key_blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  std::size_t scratch_bytes = 0;

  Plan plan() const;
  bool operator==(const BackwardFlashLaunch&) const = default;
};

// ---- simt: a warp per row or key ----------------------------------------------------------------

inline constexpr int kBackwardSimtWarps = 8;  // of a block

// Keys or rows that go by together. Fewer of wide ones, so that a block fits the 99 KB of sm_86.
constexpr int backward_simt_tile(int columns) { return columns > 8 ? 16 : 32; }

// Of a row or key in shared memory, in floats: lanes that read 16 bytes each of 8 rows meet no bank
// twice, because dims are multiples of 8.
constexpr int backward_simt_stride(int dim) { return dim + 4; }

BackwardSimtLaunch backward_simt(const Problem& p, const Machine& m);
std::string refuse_backward_simt(const Problem& p, const Machine& m);

// ---- flash: tiles of rows against tiles of keys -------------------------------------------------

inline constexpr int kBackwardTile = 64;  // rows or keys that a block owns
inline constexpr int kBackwardThreads = 128;
// What a block sums: columns of dk and of dv, or of dq. The registers hold no more.
inline constexpr int kBackwardColumns = 128, kBackwardQueryColumns = 256;

// Rows or keys that go by together. Fewer of wide ones, so that a block fits the 163 KB of sm_80.
constexpr int backward_passing(int dim) { return dim > 256 ? 16 : kBackwardTile; }

// Tiles that are here or on their way, of each of the two operands that go by.
constexpr int backward_stages(int dim) { return dim > 128 ? 1 : 2; }

// What the kernels know of a row that goes by: two floats, and for every option a slope and a key.
constexpr std::size_t backward_facts_bytes(bool general) {
  return general ? 2 * kBackwardRowBytes : kBackwardRowBytes;
}

// What stays and what goes by, two tiles each, and with what goes by the facts of its rows.
constexpr std::size_t backward_shared_bytes(int dim, bool general) {
  const std::size_t pair = 2 * round_up(dim, 64) * sizeof(std::uint16_t);
  return kBackwardTile * pair +
         backward_stages(dim) * backward_passing(dim) * (pair + backward_facts_bytes(general));
}

// Of the larger of its two kernels.
struct BackwardSizes {
  std::int64_t blocks;
  std::size_t shared_bytes;
};
template <class Launch>
constexpr BackwardSizes sizes_of(const Launch& launch) {
  return {std::max(launch.query_blocks, launch.key_blocks), launch.shared_bytes};
}

BackwardFlashLaunch backward_flash(const Problem& p, const Machine& m);
std::string refuse_backward_flash(const Problem& p, const Machine& m);

}  // namespace onepass::gpu_attention
