// The launches of the kernels that select from rows on a GPU, as pure functions of problem and
// machine: policy.hpp says which can run, and which is best.
#pragma once

#include "rows/gpu/plan.hpp"
#include "rows/packs.hpp"

namespace onepass::gpu_select {

// Keys that a thread of a block looks after: the block has room for as many that were offered, and
// for as many that are to be ordered. K is at most half of them.
inline constexpr int kKeysEach = 8;
inline constexpr int kMostThreads = gpu_rows::kBlockThreads;
inline constexpr std::int64_t kMostK = kKeysEach * kMostThreads / 2;
inline constexpr std::int64_t kMostSorted = std::int64_t{1} << 30;
// A thread counts columns with 31 bits, and a few steps past the last.
inline constexpr std::int64_t kMostCols = (std::int64_t{1} << 31) - (1 << 16);
inline constexpr int kKeyBytes = 8;
// Rows come through shared memory in stages, the next on its way while one is looked at.
inline constexpr int kMostStages = 2;
inline constexpr int kTallyBytes = 16;

constexpr std::size_t ticket_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(round_up(rows * 4, 16));
}

// Scale and temperature are no options here: dense rows see them in their exponentials. What the
// values are written as does not matter either.
constexpr bool is_general(const Problem& p) {
  return !p.only_scaled || !p.whole_rows || !p.unit_stride || !p.even_rows;
}

// Packs of a thread and stage, each of which is a barrier or two. Blocks that share a processor are
// better short of memory and registers, unless their stages are many; one that has it to itself is
// not. General rows keep logits, f32 in place of 16 bits.
inline constexpr int kGeneralPacks = 2;
inline constexpr int kFewPacks = 4;
inline constexpr int kManyPacks = 8;
inline constexpr int kManyStages = 48;
constexpr int packs_each(bool general, bool alone, std::int64_t few_stages) {
  if (general) return kGeneralPacks;
  return alone || few_stages > kManyStages ? kManyPacks : kFewPacks;
}
constexpr int tile_bytes(int packs) { return packs == kGeneralPacks ? 64 : packs * kPackBytes; }

constexpr std::int64_t packs(const Problem& p) {
  const std::int64_t n =
      is_general(p) ? most_any_packs(p.cols, p.in, p.aligned_rows) : p.cols / pack_lanes(p.in);
  return std::max<std::int64_t>(n, 1);
}

// Candidates that a part of a row leaves for the others.
constexpr std::int64_t wanted(const Problem& p) { return std::min(p.k, kMostK); }

// Threads that have room for twice K keys.
constexpr int least_threads(std::int64_t k) {
  return std::max(128, power_of_two_from(ceil_div(2 * k, kKeysEach)));
}

// Small blocks where rows are many, so that one selects while others read; but enough threads that
// the K-th largest of what they have seen says something.
constexpr int small_threads(std::int64_t k) {
  return std::min(kMostThreads, std::max(least_threads(k), power_of_two_from(k + k / 2)));
}

// ---- launches -----------------------------------------------------------------------------------

// A block, a cluster, or blocks all over the GPU per row.
struct SelectLaunch {
  static constexpr bool resident = true;  // x is read from memory once

  std::int64_t blocks = 0;
  int threads = 0;
  int parts = 1;    // blocks per row,
  int cluster = 1;  // which are a cluster of so many, or, with 1, meet in the workspace
  int packs = 0;    // per thread and stage
  int chunk = 0;    // packs of a part
  int stages = 1;   // of shared memory
  int segment = 0;  // keys that a part leaves at most, with the one that counts them
  std::size_t shared_bytes = 0, scratch_bytes = 0;
  bool general = false;  // options that no kernel is compiled for

  // Keys that a block has room for: as many that were offered, and as many to be ordered.
  constexpr int keys() const { return kKeysEach * threads; }
  // Candidates that there is room for.
  constexpr int most_candidates() const {
    return parts > 1 ? std::min(keys() / 2, segment - 1) : keys() / 2;
  }

  Plan plan() const;
  bool operator==(const SelectLaunch&) const = default;
};

// A few lanes per row.
struct LanesLaunch {
  static constexpr bool resident = true;

  std::int64_t blocks = 0;
  int threads = 0;
  int row_threads = 1;

  Plan plan() const;
  bool operator==(const LanesLaunch&) const = default;
};

// A block per row, its keys in the workspace.
struct SortLaunch {
  static constexpr bool resident = false;

  std::int64_t blocks = 0;  // rows at a time
  int threads = 0;
  int keys = 0;  // per row, a power of two
  std::size_t scratch_bytes = 0;
  bool general = false;

  Plan plan() const;
  bool operator==(const SortLaunch&) const = default;
};

// ---- from a problem to its launch ---------------------------------------------------------------

// Of a block: the stages; keys that were offered; the places of packs that have candidates; a tally
// of each warp of its cluster. Keys to be ordered lie where the stages were, but in a cluster
// others send theirs, and what they have seen, while stages are in use.
constexpr std::size_t shared_bytes(const SelectLaunch& launch) {
  const int keys = kKeysEach * kKeyBytes;
  const int alone = launch.stages * tile_bytes(launch.packs) + keys + launch.packs * 4;
  const int together = launch.cluster > 1 ? keys + 4 : 0;
  return static_cast<std::size_t>(launch.threads * (alone + together) +
                                  launch.cluster * launch.threads / kWarp * kTallyBytes);
}

// Beside what a kernel declares.
template <class Launch>
constexpr bool fits(const Launch& launch, const Machine& m) {
  constexpr int kDeclared = 2048;
  return launch.shared_bytes + kDeclared <= static_cast<std::size_t>(m.gpu.block_shared);
}

// As long stages and as large a block as are good and as there is memory for. Without a copy
// engine, or where a row takes more than a copy, nothing comes while a stage is looked at,
// and one is enough.
inline SelectLaunch part(const Problem& p, const Machine& m, int parts, int threads,
                         int cluster = 1) {
  SelectLaunch launch{
      .threads = threads, .parts = parts, .cluster = cluster, .general = is_general(p)};
  launch.chunk = static_cast<int>(ceil_div(packs(p), parts));
  launch.blocks = p.rows * parts;
  launch.segment = launch.keys() / parts;
  const int most = launch.general || m.gpu.sm < 90 ? 1 : kMostStages;
  const auto with = [&](int packs_of_thread) {
    launch.packs = packs_of_thread;
    const auto all = static_cast<int>(ceil_div(launch.chunk, launch.packs * threads));
    launch.stages = std::clamp(all, 1, most);
    launch.shared_bytes = shared_bytes(launch);
    return fits(launch, m);
  };
  const std::int64_t few_stages = ceil_div(launch.chunk, kFewPacks * threads);
  const bool alone = launch.blocks <= m.gpu.processors && few_stages > 1;
  const int wished = packs_each(launch.general, alone, few_stages);
  if (with(wished) || (wished == kManyPacks && with(kFewPacks))) return launch;
  const bool may_be_smaller = cluster == 1 && threads / 2 >= least_threads(wanted(p));
  return may_be_smaller ? part(p, m, parts, threads / 2) : launch;
}

inline SelectLaunch block_of(const Problem& p, const Machine& m, int threads) {
  return part(p, m, 1, threads);
}

// Clusters that can be: the first block must be able to take what all of them leave.
constexpr bool fits_cluster(const Problem& p, const Machine& m, int split, int threads) {
  return split > 1 && split <= gpu_rows::most_cluster(m) && split == power_of_two_from(split) &&
         split * (wanted(p) + 1) <= kKeysEach * threads && packs(p) / split >= 2 * kWarp;
}
inline SelectLaunch cluster_of(const Problem& p, const Machine& m, int split, int threads) {
  return part(p, m, split, threads, split);
}

// As many blocks per row as there are processors for, while each still has two packs per thread
// of a small block.
constexpr int cluster_split(const Problem& p, const Machine& m) {
  int split = 1;
  while (2 * split * p.rows <= m.gpu.processors && packs(p) / split >= 2 * kMostThreads &&
         fits_cluster(p, m, 2 * split, kMostThreads)) {
    split *= 2;
  }
  return split;
}

// Large blocks where rows are few, but a thread is to have a tile.
constexpr int large_threads(const Problem& p, int split) {
  int t = small_threads(wanted(p));
  if (split > 1) t = std::max(t, 256);
  while (t < kMostThreads &&
         (std::int64_t{t} * packs_each(is_general(p), true, 0) < packs(p) / split ||
          split * (wanted(p) + 1) > kKeysEach * t)) {
    t *= 2;
  }
  return t;
}

inline SelectLaunch block(const Problem& p, const Machine& m) {
  const bool many = p.rows > 2 * m.gpu.processors;
  return block_of(p, m, many ? small_threads(wanted(p)) : large_threads(p, 1));
}
inline SelectLaunch cluster(const Problem& p, const Machine& m) {
  const int split = std::max(2, cluster_split(p, m));
  return cluster_of(p, m, split, large_threads(p, split));
}

// ---- a cluster a row that guesses how many of the K each block has (guess.cuh) ------------------

inline constexpr int kGuessKeys = 256;  // that all blocks send
inline constexpr int kGuessThreads = 256;
// K of which a block has more than it sends in one of 200,000 random rows at most.
inline constexpr int kMostGuessed = 128;
constexpr std::int64_t most_guessed(int split) {
  return split == 16 ? 64 : split == 4 ? kMostGuessed : 0;
}
inline constexpr std::size_t kGuessAnswerBytes = 1 << 10;  // for what a kernel makes of the keys
inline constexpr std::size_t kGuessBytes = 11 << 10;       // that its kernel declares

// With as many packs per thread as it takes, whatever else a processor has to do.
inline SelectLaunch guess_of(const Problem& p, const Machine& m, int split) {
  SelectLaunch launch = part(p, m, split, kGuessThreads, split);
  if (!launch.general && launch.chunk > kFewPacks * launch.threads) {
    launch.packs = kManyPacks;
    launch.stages = 1;
    launch.shared_bytes = shared_bytes(launch);
  }
  return launch;
}
// A thread has all of its packs at once, and at least one: a block's limit is that of many threads.
constexpr bool fits_guess(const Problem& p, const Machine& m, const SelectLaunch& launch) {
  return p.k <= most_guessed(launch.parts) && !launch.general && launch.threads == kGuessThreads &&
         fits_cluster(p, m, launch.parts, launch.threads) &&
         launch.chunk <= launch.packs * launch.threads && launch.chunk >= launch.threads &&
         launch.shared_bytes + kGuessBytes <= static_cast<std::size_t>(m.gpu.block_shared);
}
// As many blocks as there are processors for.
inline SelectLaunch guess(const Problem& p, const Machine& m) {
  const SelectLaunch many = guess_of(p, m, 16);
  return many.blocks <= m.gpu.processors && fits_guess(p, m, many) ? many : guess_of(p, m, 4);
}

// Keys that a part of the grid leaves at most, and one that counts them: the last block must have
// room for them beside the K that it has.
constexpr std::int64_t grid_room(const Problem& p, int threads) {
  const std::int64_t k = wanted(p);
  return std::min(kKeysEach * threads - k, k + k / 2 + 32) + 1;
}

// Blocks all over the GPU; who comes last has the row.
inline SelectLaunch grid_of(const Problem& p, const Machine& m, int parts, int threads) {
  SelectLaunch launch = part(p, m, parts, threads);
  launch.segment = static_cast<int>(grid_room(p, launch.threads));
  launch.scratch_bytes =
      ticket_bytes(p.rows) + static_cast<std::size_t>(launch.blocks) *
                                 static_cast<std::size_t>(kTallyBytes + launch.segment * kKeyBytes);
  return launch;
}

inline SelectLaunch grid(const Problem& p, const Machine& m) {
  const std::int64_t most = std::int64_t{m.gpu.processors} * gpu_rows::kBlocksAtOnce;
  const std::int64_t parts =
      std::min(most / std::max<std::int64_t>(p.rows, 1), packs(p) / (4 * kMostThreads));
  return grid_of(p, m, static_cast<int>(std::clamp<std::int64_t>(parts, 2, 256)), kMostThreads);
}

// Any K: keys in the workspace, as many rows at once as a part of the memory holds.
constexpr int sorted_keys(std::int64_t k) { return std::max(2, power_of_two_from(k)); }
inline SortLaunch sort(const Problem& p, const Machine&) {
  SortLaunch launch{.threads = kMostThreads, .keys = sorted_keys(p.k), .general = is_general(p)};
  const std::int64_t row_bytes = std::int64_t{launch.keys} * kKeyBytes;
  launch.blocks = std::clamp<std::int64_t>((std::int64_t{256} << 20) / row_bytes, 1,
                                           std::max<std::int64_t>(p.rows, 1));
  launch.scratch_bytes = static_cast<std::size_t>(launch.blocks * row_bytes);
  return launch;
}

// ---- float64: a block per row, digit by digit (wide.cu) -----------------------------------------

inline constexpr int kWideDigits = 256;
inline constexpr int kEntryBytes = 16;  // of the workspace, for an element and its index
inline SortLaunch wide(const Problem& p, const Machine& m) {
  SortLaunch launch{.threads = kMostThreads, .keys = sorted_keys(p.k), .general = true};
  const std::int64_t row_bytes = std::int64_t{launch.keys} * kEntryBytes;
  const std::int64_t most = std::clamp<std::int64_t>(p.rows, 1, 2 * m.gpu.processors);
  launch.blocks = std::clamp<std::int64_t>((std::int64_t{256} << 20) / row_bytes, 1, most);
  launch.scratch_bytes = static_cast<std::size_t>(launch.blocks * row_bytes);
  return launch;
}

// ---- a few lanes per row: gates, and short rows -------------------------------------------------

inline constexpr int kGateThreads = 256;
inline constexpr int kGateBlocks = 3;  // on a processor at least
inline constexpr std::int64_t kMostExperts = 1024;
inline constexpr std::int64_t kMostGateK = kWarp;

// Lanes that have a row, at most 32 columns each and K of them: what they do together takes eight
// fewer steps, and the four rows of a warp take them at once.
inline constexpr int kFewLanes = 8;
constexpr int lanes_for(const Problem& p) {
  return p.cols <= kFewLanes * 32 && p.k <= kFewLanes ? kFewLanes : kWarp;
}

inline LanesLaunch warp(const Problem& p, const Machine&) {
  const int lanes = lanes_for(p);
  return {.blocks = ceil_div(p.rows * lanes, kGateThreads),
          .threads = kGateThreads,
          .row_threads = lanes};
}

}  // namespace onepass::gpu_select
