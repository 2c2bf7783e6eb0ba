// The launches of the softmax walk, as pure functions: how many blocks of how many threads, what
// shared memory, what workspace, and which rows are too long. Kernels and launchers take these
// numbers as they are.
#pragma once

#include <algorithm>
#include <string>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/state.hpp"
#include "ops/softmax/walk/walk.hpp"
#include "rows/limits.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::softmax {

namespace geometry {

constexpr WalkLaunch block_a_row(const Problem& p, int threads, std::size_t shared = 0) {
  return {.blocks = blocks_for(p.rows), .threads = threads, .shared_bytes = shared};
}

// ---- textbook ---------------------------------------------------------------------------------

inline WalkLaunch naive(const Problem& p, const Machine&) {
  constexpr int threads = 128;
  return {.blocks = blocks_for(ceil_div(p.rows, threads)), .threads = threads};
}

// Threads past the row's last element would fold nothing, so a short row gets a small block: of 96
// or 160 threads as well as of a power of two.
inline constexpr int kScalarThreads = 256;

inline WalkLaunch one_state_a_thread(const Problem& p, const Machine&) {
  const int threads = whole_warps(p.cols, kScalarThreads);
  return block_a_row(p, threads, sizeof(State<float>) * static_cast<std::size_t>(threads));
}

// ---- packs ------------------------------------------------------------------------------------

constexpr int threads_for_cols(std::int64_t cols) {
  return cols <= 4096 ? 256 : cols <= 16384 ? 512 : 1024;
}

// vec4 folds through shared memory, one float per thread.
inline WalkLaunch vec4(const Problem& p, const Machine&) {
  const int threads = threads_for_cols(p.cols);
  return block_a_row(p, threads, sizeof(float) * static_cast<std::size_t>(threads));
}

inline WalkLaunch packs(const Problem& p, const Machine&) {
  return block_a_row(p, threads_for_cols(p.cols));
}

inline WalkLaunch two_pass_vector(const Problem& p, const Machine&) {
  return block_a_row(p, whole_warps(ceil_div(p.cols, pack_lanes(p.in) * kInFlight), 1024));
}

// ---- rows on chip -----------------------------------------------------------------------------

inline constexpr std::int64_t kRegisterCols = 8192;
inline constexpr int kRegisterPacks = 8;  // most packs a thread holds

// The fewest packs per thread (1, 2, 4 or 8) with which a block of up to 512 threads holds the row.
constexpr int packs_a_thread(std::int64_t packs) {
  int each = 1;
  while (each < kRegisterPacks && packs > 512 * each) each *= 2;
  return each;
}

inline WalkLaunch register_packed(const Problem& p, const Machine&) {
  const std::int64_t packs = most_packs(p.cols, p.in);
  const int each = packs_a_thread(packs);
  WalkLaunch launch = block_a_row(p, whole_warps(ceil_div(packs, each), 1024));
  launch.packs = each;
  launch.resident = true;
  return launch;
}

// The first `shared` packs in shared memory.
constexpr WalkLaunch on_chip(const Problem& p, int threads, std::int64_t shared) {
  WalkLaunch launch = block_a_row(p, threads, static_cast<std::size_t>(shared * kPackBytes));
  launch.resident = true;
  return launch;
}

inline constexpr std::int64_t kMediumCols = 32768;
inline constexpr std::int64_t kMediumShared = 32 << 10;

inline WalkLaunch register_shared_medium(const Problem& p, const Machine&) {
  // Four packs per thread, two of them in shared memory; of longer rows more, in registers.
  const int threads = whole_warps(ceil_div(most_packs(p.cols, p.in), 4), 1024);
  return on_chip(p, threads, std::min<std::int64_t>(2 * threads, kMediumShared / kPackBytes));
}

// As many packs in registers as go, the rest in shared memory, where the block's merge needs room
// too.
inline constexpr int kMergeShared = 1024;

inline WalkLaunch register_shared_extreme(const Problem& p, const Machine&) {
  const std::int64_t packs = most_packs(p.cols, p.in);
  const int threads = whole_warps(ceil_div(packs, kHeldPacks), 1024);
  return on_chip(p, threads, std::max<std::int64_t>(0, packs - threads * kHeldPacks));
}

// The longest row that one block can hold, wherever it begins.
constexpr std::int64_t extreme_cols(DType dtype, const Machine& m) {
  const std::int64_t packs = 1024 * kHeldPacks + (m.gpu.block_shared - kMergeShared) / kPackBytes;
  return packs * pack_lanes(dtype) - (pack_lanes(dtype) - 1);
}

// ---- rows over blocks -------------------------------------------------------------------------

inline constexpr std::int64_t kFewestPacks = 1024;  // a chunk: four packs per thread

// Chunks a row, so that all blocks together fill the processors, and no chunk is too small.
constexpr int chunks(const Problem& p, std::int64_t blocks) {
  const std::int64_t useful = ceil_div(most_packs(p.cols, p.in), kFewestPacks);
  const std::int64_t wanted = ceil_div(blocks, std::max<std::int64_t>(p.rows, 1));
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(useful, 1)));
}

inline WalkLaunch split_rows(const Problem& p, const Machine& m, int blocks_a_processor) {
  const std::int64_t full = std::int64_t{m.gpu.processors} * blocks_a_processor;
  WalkLaunch launch{.threads = kSplitThreads, .split = chunks(p, full)};
  launch.blocks = blocks_for(p.rows * launch.split);
  launch.scratch_bytes = static_cast<std::size_t>(p.rows * launch.split) * sizeof(State<float>);
  return launch;
}

inline WalkLaunch split_k(const Problem& p, const Machine& m) {
  return split_rows(p, m, m.gpu.processor_threads / kSplitThreads);
}

// A cooperative launch may have no more blocks than the SMs hold at once, for which the
// kernel is compiled.
inline WalkLaunch split_k_single(const Problem& p, const Machine& m) {
  WalkLaunch launch = split_rows(p, m, kResidentBlocks);
  launch.blocks = std::min<std::int64_t>(launch.blocks, m.gpu.processors * kResidentBlocks);
  return launch;
}

// ---- limits -----------------------------------------------------------------------------------

inline std::string refuse_walk(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in != p.out || p.in == DType::f64) return "it takes f32, f16 and bf16, and gives the same";
  if (!p.unit_stride) return "its rows must be dense";
  if (!p.even_rows) return "its rows must lie at one stride";
  return refuse_options(p, m);
}

inline std::string refuse_more_than(std::int64_t cols, const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_walk(p, m); !refusal.empty()) return refusal;
  if (p.cols <= cols) return {};
  return "its rows have at most " + std::to_string(cols) + " elements here";
}

inline std::string refuse_registers(const Problem& p, const Machine& m) {
  return refuse_more_than(kRegisterCols, p, m);
}

inline std::string refuse_medium(const Problem& p, const Machine& m) {
  return refuse_more_than(kMediumCols, p, m);
}

inline std::string refuse_extreme(const Problem& p, const Machine& m) {
  return refuse_more_than(extreme_cols(p.in, m), p, m);
}

}  // namespace geometry
}  // namespace onepass::ops::softmax
