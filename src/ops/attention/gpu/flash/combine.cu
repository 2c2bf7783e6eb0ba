// What was left of a row by all who saw some of its keys, as one: a block a row. An lse is a logit
// and the mean beside it a value, so this is attention once more. Always in the same order,
// whichever was done first.

#include <cuda_runtime.h>

#include <algorithm>

#include "core/cuda/dependent.cuh"
#include "core/divisor.hpp"
#include "merge/warp.cuh"
#include "ops/attention/gpu/flash/partial.cuh"
#include "ops/attention/gpu/flash/split_kv.hpp"
#include "rows/packs.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kMostGroups = 8;
constexpr int kTogether = 8;  // values of a thread that are under way

// Threads in groups of as many as a row has fours: each group sums every so-manieth value, and the
// first all groups.
struct JoinPlaces {
  Divisor queries, heads;  // of a row's number
  Divisor fours, groups;

  explicit JoinPlaces(const AttentionArgs& a)
      : queries(static_cast<int>(a.queries)),
        heads(static_cast<int>(a.heads)),
        fours(a.dim / 4),
        groups(std::min(kThreads / fours, kMostGroups)) {}
};

__global__ void __launch_bounds__(kThreads)
    join(const __grid_constant__ AttentionArgs a, const Parts parts, const JoinPlaces grid) {
  __shared__ Four of_groups[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto row = static_cast<int>(blockIdx.x);
  const int query = row % grid.queries;
  const int head = row / grid.queries % grid.heads;
  const int batch = row / grid.queries / grid.heads;
  const int group = thread / grid.fours;
  const int column = thread % grid.fours * 4;
  const int left = parts.left();
  const int count = group < grid.groups ? (left - group + grid.groups - 1) / grid.groups : 0;
  const float* const logits = parts.lse + row;
  const float* const means = parts.means + parts.place(group, row) * parts.dim + column;
  const std::int64_t step = grid.groups * parts.rows;  // from one of a group's to the next
  await_previous();
  if (a.q_offsets && query >= a.q_offsets[a.batch]) return;  // of no sequence

  Four values[kTogether];
  float own[kTogether];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const bool there = first + i < count;
      own[i] = there ? logits[group * parts.rows + (first + i) * step] : minus_infinity<float>();
      if (there) values[i] = *reinterpret_cast<const Four*>(means + (first + i) * step * parts.dim);
    }
  };
  load(0);  // on their way while the row's state is worked out, by every warp
  State<float> seen = identity<float>();
#pragma unroll 1
  for (int i = thread % kWarp; i < left; i += kWarp) {
    seen = merge(seen, leaf(logits[i * parts.rows]));
  }
  seen = group_fold(seen, Merge<float>(), kWarp);

  Four sum{0, 0, 0, 0};
#pragma unroll 1
  for (int first = 0; first < count; first += kTogether) {
    if (first > 0) load(first);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float weight = rescale(seen.m, own[i]);
      if (weight != 0) sum = sum + values[i] * weight;  // else the mean may be NaN all the same
    }
  }
  of_groups[thread] = sum;
  __syncthreads();
  if (group != 0) return;
#pragma unroll 1
  for (int i = 1; i < grid.groups; ++i) sum = sum + of_groups[i * grid.fours + thread];
  const State<float> all = with_sink(a, seen, head);
  write_mean(a, a.o.offset(batch, head, query) + column, {seen, sum}, all);
  if (a.lse && thread == 0) {
    write_like(a.lse.data, a.lse.dtype, a.lse.offset(batch, head, query), logsumexp(all));
  }
}

}  // namespace

Status join_parts(const AttentionArgs& a, const Parts& parts) {
  return launch({.queue = a.queue, .blocks = parts.rows, .threads = kThreads}, "join", join, a,
                parts, JoinPlaces(a));
}

}  // namespace onepass::ops::attention
