// The launches of the kernels that choose from rows on a GPU, as pure functions of problem and machine: gpu_choose_best.hpp
// says which can run, and which is best.
#pragma once

#include "rows/gpu/plan.hpp"

namespace onepass::gpu_choose {

// Keys that a thread of a block looks after: the block has room for as many that were offered, and for
// as many that are to be ordered. K is at most half of them.
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

// Scale and temperature are no options here: dense rows see them in their exponentials. What the values are
// written as does not matter either.
constexpr bool is_general(const Problem& p) {
  return !p.only_scaled || !p.whole_rows || !p.unit_stride || !p.even_rows;
}

// Packs of a thread and stage, each of which is a barrier or two. Blocks that share a processor are better short of
// memory and registers, unless their stages are many; one that has it to itself is not. General rows keep logits,
// f32 in place of 16 bits.
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
  const std::int64_t n = is_general(p) ? most_packs(p.cols, p.in, p.aligned_rows)
                                       : p.cols / pack_lanes(p.in);
  return std::max<std::int64_t>(n, 1);
}

// Candidates that a part of a row leaves for the others.
constexpr std::int64_t wanted(const Problem& p) { return std::min(p.k, kMostK); }

// Threads that have room for twice K keys.
constexpr int least_threads(std::int64_t k) {
  return std::max(128, power_of_two_from(ceil_div(2 * k, kKeysEach)));
}

// Small blocks where rows are many, so that one selects while others read; but enough threads that the K-th
// largest of what they have seen says something.
constexpr int small_threads(std::int64_t k) {
  return std::min(kMostThreads, std::max(least_threads(k), power_of_two_from(k + k / 2)));
}

// Of a block: the stages; keys that were offered; the places of packs that have candidates; a tally of each warp of
// its cluster. Keys to be ordered lie where the stages were, but in a cluster others send theirs, and what they have
// seen, while stages are in use.
constexpr std::size_t shared_bytes(const Plan& plan, int cluster, int stages) {
  const int keys = kKeysEach * kKeyBytes;
  const int alone = stages * tile_bytes(plan.packs) + keys + plan.packs * 4;
  const int together = cluster > 1 ? keys + 4 : 0;
  return static_cast<std::size_t>(plan.threads * (alone + together) +
                                  cluster * plan.threads / kWarp * kTallyBytes);
}

// Beside what a kernel declares.
constexpr bool fits(const Plan& plan, const Machine& m) {
  constexpr int kDeclared = 2048;
  return plan.shared_bytes + kDeclared <= static_cast<std::size_t>(m.gpu.block_shared);
}

// As long stages and as large a block as are good and as there is memory for. Without a copy engine, or where a row
// takes more than a copy, nothing comes while a stage is looked at, and one is enough.
inline Plan part(std::string_view variant, const Problem& p, const Machine& m, int split,
                 int threads, int cluster = 1) {
  Plan plan{.variant = variant, .threads = threads, .split = split, .resident = true};
  plan.chunk = static_cast<int>(ceil_div(packs(p), split));
  plan.blocks = p.rows * split;
  plan.general = is_general(p);
  const int most = plan.general || m.gpu.sm < 90 ? 1 : kMostStages;
  const auto with = [&](int packs_of_thread) {
    plan.packs = packs_of_thread;
    const auto all = static_cast<int>(ceil_div(plan.chunk, plan.packs * threads));
    plan.shared_bytes = shared_bytes(plan, cluster, std::clamp(all, 1, most));
    return fits(plan, m);
  };
  const std::int64_t few_stages = ceil_div(plan.chunk, kFewPacks * threads);
  const bool alone = plan.blocks <= m.gpu.processors && few_stages > 1;
  const int wished = packs_each(plan.general, alone, few_stages);
  if (with(wished) || (wished == kManyPacks && with(kFewPacks))) return plan;
  const bool may_be_smaller = cluster == 1 && threads / 2 >= least_threads(wanted(p));
  return may_be_smaller ? part(variant, p, m, split, threads / 2) : plan;
}

// As a plan has memory for.
constexpr int stages(const Plan& plan) {
  const int cluster = plan.scratch_bytes > 0 ? 1 : plan.split;
  return plan.shared_bytes >= shared_bytes(plan, cluster, kMostStages) ? kMostStages : 1;
}

// Keys of a block: as many that were offered, and as many to be ordered.
inline int room(const Plan& plan) { return kKeysEach * plan.threads; }

inline Plan block_of(const Problem& p, const Machine& m, int threads) {
  return part("gpu_block", p, m, 1, threads);
}

// Clusters that can be: the first block must be able to take what all of them leave.
constexpr bool fits_cluster(const Problem& p, const Machine& m, int split, int threads) {
  return split > 1 && split <= gpu_rows::most_cluster(m) &&
         split == power_of_two_from(split) &&
         split * (wanted(p) + 1) <= kKeysEach * threads && packs(p) / split >= 2 * kWarp;
}
inline Plan cluster_of(const Problem& p, const Machine& m, int split, int threads) {
  return part("gpu_cluster", p, m, split, threads, split);
}

// As many blocks a row as there are processors for, while each still has two packs a thread of a small block.
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

inline Plan block(const Problem& p, const Machine& m) {
  const bool many = p.rows > 2 * m.gpu.processors;
  return block_of(p, m, many ? small_threads(wanted(p)) : large_threads(p, 1));
}
inline Plan cluster(const Problem& p, const Machine& m) {
  const int split = std::max(2, cluster_split(p, m));
  return cluster_of(p, m, split, large_threads(p, split));
}

// ---- a cluster a row that guesses how many of the K each block has (guess.cuh) ---------------------------------

inline constexpr int kGuessKeys = 256;  // that all blocks send
inline constexpr int kGuessThreads = 256;
// K of which a block has more than it sends in one of 200,000 random rows at most.
inline constexpr int kMostGuessed = 128;
constexpr std::int64_t most_guessed(int split) {
  return split == 16 ? 64 : split == 4 ? kMostGuessed : 0;
}
inline constexpr std::size_t kGuessAnswerBytes = 1 << 10;  // for what a kernel makes of the keys
inline constexpr std::size_t kGuessBytes = 11 << 10;       // that its kernel declares

// With as many packs a thread as it takes, whatever else a processor has to do.
inline Plan guess_of(const Problem& p, const Machine& m, int split) {
  Plan plan = part("gpu_guess", p, m, split, kGuessThreads, split);
  if (!plan.general && plan.chunk > kFewPacks * plan.threads) {
    plan.packs = kManyPacks;
    plan.shared_bytes = shared_bytes(plan, split, 1);
  }
  return plan;
}
// A thread has all of its packs at once, and at least one: a block's limit is that of many threads.
constexpr bool fits_guess(const Problem& p, const Machine& m, const Plan& plan) {
  return p.k <= most_guessed(plan.split) && !plan.general && plan.threads == kGuessThreads &&
         fits_cluster(p, m, plan.split, plan.threads) && plan.chunk <= plan.packs * plan.threads &&
         plan.chunk >= plan.threads &&
         plan.shared_bytes + kGuessBytes <= static_cast<std::size_t>(m.gpu.block_shared);
}
// As many blocks as there are processors for.
inline Plan guess(const Problem& p, const Machine& m) {
  const Plan many = guess_of(p, m, 16);
  return many.blocks <= m.gpu.processors && fits_guess(p, m, many) ? many : guess_of(p, m, 4);
}

// Keys that a part of the grid leaves at most, and one that counts them: the last block must have room for them
// beside the K that it has.
constexpr std::int64_t grid_room(const Problem& p, int threads) {
  const std::int64_t k = wanted(p);
  return std::min(kKeysEach * threads - k, k + k / 2 + 32) + 1;
}

// Blocks all over the GPU; who comes last has the row.
inline Plan grid_of(const Problem& p, const Machine& m, int parts, int threads) {
  Plan plan = part("gpu_grid", p, m, parts, threads);
  plan.scratch_bytes =
      ticket_bytes(p.rows) +
      static_cast<std::size_t>(plan.blocks) *
          static_cast<std::size_t>(kTallyBytes + grid_room(p, plan.threads) * kKeyBytes);
  return plan;
}

inline Plan grid(const Problem& p, const Machine& m) {
  const std::int64_t most = std::int64_t{m.gpu.processors} * gpu_rows::kBlocksAtOnce;
  const std::int64_t parts =
      std::min(most / std::max<std::int64_t>(p.rows, 1), packs(p) / (4 * kMostThreads));
  return grid_of(p, m, static_cast<int>(std::clamp<std::int64_t>(parts, 2, 256)), kMostThreads);
}

// Any K: keys in the workspace, as many rows at once as a part of the memory holds.
constexpr int sorted_keys(std::int64_t k) { return std::max(2, power_of_two_from(k)); }
inline Plan sort(const Problem& p, const Machine&) {
  Plan plan{.variant = "gpu_sort", .threads = kMostThreads};
  const std::int64_t row_bytes = std::int64_t{sorted_keys(p.k)} * kKeyBytes;
  const std::int64_t at_once = std::clamp<std::int64_t>((std::int64_t{256} << 20) / row_bytes, 1,
                                                        std::max<std::int64_t>(p.rows, 1));
  plan.blocks = at_once;
  plan.scratch_bytes = static_cast<std::size_t>(at_once * row_bytes);
  plan.general = is_general(p);
  return plan;
}

// ---- float64: a block a row, digit by digit (18_wide.cu) ------------------------------------------------------

inline constexpr int kWideDigits = 256;
inline constexpr int kEntryBytes = 16;  // of the workspace, for an element and its index
inline Plan wide(const Problem& p, const Machine& m) {
  Plan plan{.variant = "gpu_wide", .threads = kMostThreads, .general = true};
  const std::int64_t row_bytes = std::int64_t{sorted_keys(p.k)} * kEntryBytes;
  const std::int64_t most = std::clamp<std::int64_t>(p.rows, 1, 2 * m.gpu.processors);
  plan.blocks = std::clamp<std::int64_t>((std::int64_t{256} << 20) / row_bytes, 1, most);
  plan.scratch_bytes = static_cast<std::size_t>(plan.blocks * row_bytes);
  return plan;
}

// Keys of a part's segment on the grid, as the workspace has them.
inline int segment_room(const Plan& plan) {
  const std::int64_t rows = plan.blocks / plan.split;
  const auto a_part =
      (plan.scratch_bytes - ticket_bytes(rows)) / static_cast<std::size_t>(plan.blocks);
  return static_cast<int>((a_part - kTallyBytes) / kKeyBytes);
}

// Candidates that a launch has room for.
inline int most_candidates(const Plan& plan) {
  const int keys = room(plan);
  const int segment = plan.scratch_bytes > 0 ? segment_room(plan) : keys / plan.split;
  return plan.split > 1 ? std::min(keys / 2, segment - 1) : keys / 2;
}

// ---- a warp a row, or a few: many long rows --------------------------------------------------------------------

inline constexpr int kStreamStages = 2;
// Warps on a processor: with more, registers would be too few.
inline constexpr int kStreamsAtOnce = 16;
// Packs of a lane at a time, in two halves of which each element has a bit.
inline constexpr int kStreamPacks = 8;
inline constexpr int kStreamLaneBytes = kStreamStages * kStreamPacks * kPackBytes;
inline constexpr int kStreamStagesBytes = kWarp * kStreamLaneBytes;  // of a warp
// Keys that a lane has room for.
inline constexpr int kStreamKeys = 18;
// Of a lane's elements: 512 of a row's.
inline constexpr int kStreamGroups = 16;
inline constexpr std::int64_t kMostStreamK = 256;
inline constexpr std::int64_t kMostSampleStream = 128;
// One warp has registers to order so many.
inline constexpr std::int64_t kMostOneWarpK = 128;
// Where several warps of a row meet, and what those of other blocks have shown.
inline constexpr int kMostStreamCluster = 4;
inline constexpr int kStreamShownBytes = kStreamGroups * kWarp * 4;
inline constexpr int kStreamMeetingBytes =
    kStreamShownBytes + kStreamsAtOnce * (kTallyBytes + 4) + 32;
inline constexpr int kStreamOthersBytes = 16 + (kMostStreamCluster - 1) * kTallyBytes;

constexpr int least_stream_warps(const Problem& p) { return p.k > kMostOneWarpK ? 2 : 1; }

inline Plan stream_of(const Problem& p, int warps, int split = 1) {
  Plan plan{.variant = "gpu_stream", .threads = warps * kWarp, .split = split, .resident = true};
  plan.packs = kStreamPacks;
  plan.blocks = p.rows * split;
  const int each = kStreamLaneBytes + kStreamKeys * kKeyBytes;
  const int meeting = warps > 1 ? kStreamMeetingBytes : 0;
  const int others = split > 1 ? kStreamOthersBytes + (split - 1) * kStreamShownBytes : 0;
  plan.shared_bytes = static_cast<std::size_t>(plan.threads * each + meeting + others);
  return plan;
}

// Warps of a block, and blocks of a cluster.
constexpr bool fits_stream(const Problem& p, const Machine& m, int warps, int split) {
  const bool cluster = split == 2 || split == 4;
  return warps >= (cluster ? 2 : least_stream_warps(p)) && warps <= kStreamsAtOnce &&
         (split == 1 || (cluster && split <= gpu_rows::most_cluster(m)));
}

constexpr std::int64_t stream_stages(const Problem& p) {
  return ceil_div(packs(p), kWarp * kStreamPacks);
}
// Whether a processor has memory for so many of a plan's blocks. What a kernel declares and what the system keeps of each
// count, too; a block may have all but the latter.
constexpr bool fit_together(const Plan& plan, std::int64_t blocks, const Machine& m) {
  constexpr std::int64_t kBeside = 128 + 1024;
  const auto each = static_cast<std::int64_t>(plan.shared_bytes) + kBeside;
  return blocks * each <= m.gpu.block_shared + 1024;
}

// Clusters of two for rows that would leave half of the processors idle, of four where three in four would be. A warp that
// has a stage or two waits longer for the others than it would read; but for a large K all threads of a large block are to
// have a word of what was shown each.
inline Plan stream_cluster(const Problem& p, const Machine& m) {
  const std::int64_t stages = stream_stages(p);
  const auto warps = [&](int split) {
    return p.k > kMostOneWarpK || stages > 32 * split ? kStreamsAtOnce : kStreamsAtOnce / 2;
  };
  // GPCs have room for clusters of four such blocks on three processors in four.
  const bool four = 16 * p.rows <= 3 * m.gpu.processors ||
                    (4 * p.rows <= m.gpu.processors && p.k <= kMostOneWarpK && stages <= 24 * 4);
  const int split = four ? 4 : 2;
  return stream_of(p, warps(split), split);
}

// As many warps a row as a processor has room for, all its rows at once. One has two thousand columns at least where they are eight or
// more; where half of the room is taken by rows with a warp each, a second one has to be worth meeting.
inline Plan stream(const Problem& p, const Machine& m) {
  if (2 * p.rows <= m.gpu.processors && fits_stream(p, m, kStreamsAtOnce, kMostStreamCluster)) {
    if (const Plan plan = stream_cluster(p, m); fits(plan, m)) return plan;
  }
  const std::int64_t rows = std::max<std::int64_t>(ceil_div(p.rows, m.gpu.processors), 1);
  const std::int64_t thousands = ceil_div(p.cols, 1024);
  const bool half = 2 * rows >= kStreamsAtOnce;
  const std::int64_t useful = std::min(
      stream_stages(p),
      half && thousands < 8 ? 1 : std::max(std::min<std::int64_t>(thousands, 4), thousands / 2));
  const int least = least_stream_warps(p);
  auto warps =
      static_cast<int>(std::max<std::int64_t>(std::min(kStreamsAtOnce / rows, useful), least));
  while (warps > least && !fit_together(stream_of(p, warps), rows, m)) --warps;
  return stream_of(p, warps);
}

// ---- a few lanes a row: gates, and short rows ---------------------------------------------------------------

inline constexpr int kGateThreads = 256;
inline constexpr int kGateBlocks = 3;  // on a processor at least
inline constexpr std::int64_t kMostExperts = 1024;
inline constexpr std::int64_t kMostGateK = kWarp;

// Lanes that have a row, at most 32 columns each and K of them: what they do together takes eight fewer steps, and
// the four rows of a warp take them at once.
inline constexpr int kFewLanes = 8;
constexpr int lanes_for(const Problem& p) {
  return p.cols <= kFewLanes * 32 && p.k <= kFewLanes ? kFewLanes : kWarp;
}

inline Plan warp(const Problem& p, const Machine&) {
  Plan plan{.variant = "gpu_warp", .threads = kGateThreads, .resident = true};
  plan.row_threads = lanes_for(p);
  plan.blocks = ceil_div(p.rows * plan.row_threads, kGateThreads);
  return plan;
}

}  // namespace onepass::gpu_choose
