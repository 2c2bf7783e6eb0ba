// The launches of the kernels in which a warp has a row, or a few have: many long rows.
#pragma once

#include "ops/select/gpu/plan.hpp"
#include "rows/packs.hpp"

namespace onepass::gpu_select {

// A warp per row, or a few, of a block or of a cluster.
struct StreamLaunch {
  static constexpr bool resident = true;

  std::int64_t blocks = 0;
  int threads = 0;
  int cluster = 1;  // blocks per row
  std::size_t shared_bytes = 0;

  constexpr int warps() const { return threads / kWarp; }

  Plan plan() const;
  bool operator==(const StreamLaunch&) const = default;
};

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

inline StreamLaunch stream_of(const Problem& p, int warps, int cluster = 1) {
  StreamLaunch launch{.blocks = p.rows * cluster, .threads = warps * kWarp, .cluster = cluster};
  const int each = kStreamLaneBytes + kStreamKeys * kKeyBytes;
  const int meeting = warps > 1 ? kStreamMeetingBytes : 0;
  const int others = cluster > 1 ? kStreamOthersBytes + (cluster - 1) * kStreamShownBytes : 0;
  launch.shared_bytes = static_cast<std::size_t>(launch.threads * each + meeting + others);
  return launch;
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
// Whether a processor has memory for so many of a plan's blocks. What a kernel declares and what
// the system keeps of each count, too; a block may have all but the latter.
constexpr bool fit_together(const StreamLaunch& launch, std::int64_t blocks, const Machine& m) {
  constexpr std::int64_t kBeside = 128 + 1024;
  const auto each = static_cast<std::int64_t>(launch.shared_bytes) + kBeside;
  return blocks * each <= m.gpu.block_shared + 1024;
}

// Clusters of two for rows that would leave half of the processors idle, of four where three in
// four would be. A warp that has a stage or two waits longer for the others than it would read; but
// for a large K all threads of a large block are to have a word of what was shown each.
inline StreamLaunch stream_cluster(const Problem& p, const Machine& m) {
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

// As many warps per row as a processor has room for, all its rows at once. One has two thousand
// columns at least where they are eight or more; where half of the room is taken by rows with a
// warp each, a second one has to be worth meeting.
inline StreamLaunch stream(const Problem& p, const Machine& m) {
  if (2 * p.rows <= m.gpu.processors && fits_stream(p, m, kStreamsAtOnce, kMostStreamCluster)) {
    if (const StreamLaunch launch = stream_cluster(p, m); fits(launch, m)) return launch;
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

}  // namespace onepass::gpu_select
