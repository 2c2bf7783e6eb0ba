// The loop around every row op: fold, climb, finish. Per-target.
//
// A Body has
//   Partial                            the result of a piece of a row, with a merge
//   Row(args, plan, row)               readers and writers of one row, with live() and skew()
//   fold(row, columns, keep)           a piece of a row -> Partial
//   conclude(row, total, keep)         writes the outputs with one value per row; x is still intact
//   finish(row, total, columns, keep)  writes a piece of the outputs that need the row's total
//   hide(row, total, columns)          writes the columns that a mask cuts off
// The drive distributes rows over threads (split = 1) or each row over all threads (split > 1).

#if defined(ONEPASS_OPS_ROW_DRIVE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ROW_DRIVE_INL
#undef ONEPASS_OPS_ROW_DRIVE_INL
#else
#define ONEPASS_OPS_ROW_DRIVE_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "merge/team.hpp"
#include "rows/cpu/layout.hpp"
#include "rows/cpu/plan.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {

// What a worker keeps between fold and finish.
template <class T>
struct Keep {
  T* weights = nullptr;   // null if the launch reads the row again instead
  T* tile_max = nullptr;  // the maximum that each tile's weights are relative to
  Buffers<T>& buffers;
};

template <class Body, class Row, class Partial>
ONEPASS_FORCED void HideBeside(const Body& body, const Row& row, const Partial& total, Columns live,
                               int64_t cols) {
  if (live.begin > 0) body.hide(row, total, {0, live.begin});
  if (live.end < cols) body.hide(row, total, {live.end, cols});
}

template <class Body>
void DriveRows(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  using T = typename Body::T;
  Buffers<T> buffers;
  Keep<T> keep{.buffers = buffers};
  if (launch.resident) {
    keep.weights = reinterpret_cast<T*>(memory + team.rank() * launch.scratch_bytes);
    keep.tile_max = keep.weights + kept_weights(args.space.cols, 1);
  }
  const Body body{args, launch};
  const int64_t rows = args.end_row - args.first_row;
  // Small enough to balance the load, large enough that adjacent rows stay with one thread.
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 256);
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    for (int64_t r = first; r < std::min(first + block, rows); ++r) {
      const typename Body::Row row(args, launch, args.first_row + r);
      const Columns live = row.live();
      const auto total = body.fold(row, live, keep);
      body.conclude(row, total, keep);
      body.finish(row, total, live, keep);
      HideBeside(body, row, total, live, args.space.cols);
    }
  }
}

template <class Body>
void DriveSplit(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  using T = typename Body::T;
  using Partial = typename Body::Partial;
  Buffers<T> buffers;
  const Body body{args, launch};
  TeamMerge<Partial> team_merge(team, reinterpret_cast<Partial*>(memory), launch.split);
  std::byte* kept = memory + kSlotBytes * 2 * static_cast<std::size_t>(launch.split);
  const auto keep_of = [&](int i) {
    Keep<T> keep{.buffers = buffers};
    if (launch.resident) {
      keep.weights =
          reinterpret_cast<T*>(kept + static_cast<std::size_t>(i) * launch.scratch_bytes);
      keep.tile_max = keep.weights + kept_weights(args.space.cols, launch.split);
    }
    return keep;
  };
  for (int64_t r = args.first_row; r < args.end_row; ++r) {
    const typename Body::Row row(args, launch, r);
    const Columns live = row.live();
    for (int i = team.rank(); i < launch.split; i += team.size()) {
      Keep<T> keep = keep_of(i);
      team_merge.put(i, body.fold(row, piece(live, launch.split, i), keep));
    }
    const Partial total = team_merge.all();
    if (team.rank() == 0) {
      Keep<T> keep{.buffers = buffers};
      body.conclude(row, total, keep);
    }
    if (args.in_place && (args.lse || args.loss)) team.barrier();  // conclude may read x again
    for (int i = team.rank(); i < launch.split; i += team.size()) {
      Keep<T> keep = keep_of(i);
      body.finish(row, total, piece(live, launch.split, i), keep);
    }
    if (team.rank() == 0) {
      HideBeside(body, row, total, live, args.space.cols);
    }
  }
}

template <class Body>
void Drive(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  static_assert(sizeof(typename Body::Partial) <= kSlotBytes, "a partial must fit its slot");
  if (launch.split == 1) {
    DriveRows<Body>(args, launch, team, memory);
  } else {
    DriveSplit<Body>(args, launch, team, memory);
  }
  if (launch.streaming) hwy::FlushStream();
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
