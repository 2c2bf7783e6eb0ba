// The second pass of split-KV: merges the partial (o, lse) of every part of the keys, a block per
// row. An lse is a logit and the mean beside it a value, so this is attention once more. Partials
// are merged in the order of their keys, whichever was finished first.

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
constexpr int kTogether = 8;  // loads of a thread in flight

// Threads come in groups, a thread for each four columns. Group g sums partials g, g + groups, …;
// then the first group sums the groups.
struct CombineGrid {
  Divisor queries, heads;  // take a row's number apart
  Divisor fours, groups;

  explicit CombineGrid(const AttentionArgs& a)
      : queries(static_cast<int>(a.queries)),
        heads(static_cast<int>(a.heads)),
        fours(a.dim / 4),
        groups(std::min(kThreads / fours, kMostGroups)) {}
};

__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ AttentionArgs a, const Partials partials,
                   const CombineGrid grid) {
  __shared__ Four of_groups[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto row = static_cast<int>(blockIdx.x);
  const int query = row % grid.queries;
  const int head = row / grid.queries % grid.heads;
  const int batch = row / grid.queries / grid.heads;
  const int group = thread / grid.fours;
  const int column = thread % grid.fours * 4;
  const int left = partials.left();
  const int count = group < grid.groups ? (left - group + grid.groups - 1) / grid.groups : 0;
  const float* const logits = partials.lse + row;
  const float* const means = partials.means + partials.place(group, row) * partials.dim + column;
  const std::int64_t step = grid.groups * partials.rows;  // from one partial of a group to its next
  await_previous();
  if (a.q_offsets && query >= a.q_offsets[a.batch]) return;  // past the last sequence

  Four values[kTogether];
  float own[kTogether];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const bool there = first + i < count;
      own[i] = there ? logits[group * partials.rows + (first + i) * step] : minus_infinity<float>();
      if (there)
        values[i] = *reinterpret_cast<const Four*>(means + (first + i) * step * partials.dim);
    }
  };
  load(0);  // in flight while every warp merges the row's states
  State<float> seen = identity<float>();
#pragma unroll 1
  for (int i = thread % kWarp; i < left; i += kWarp) {
    seen = merge(seen, leaf(logits[i * partials.rows]));
  }
  seen = group_fold(seen, Merge<float>(), kWarp);

  Four sum{0, 0, 0, 0};
#pragma unroll 1
  for (int first = 0; first < count; first += kTogether) {
    if (first > 0) load(first);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float weight = rescale(seen.m, own[i]);
      if (weight != 0) sum = sum + values[i] * weight;  // where it is 0, the mean may be NaN
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

Status combine(const AttentionArgs& a, const Partials& partials) {
  return launch({.queue = a.queue, .blocks = partials.rows, .threads = kThreads}, "combine",
                combine_kernel, a, partials, CombineGrid(a));
}

}  // namespace onepass::ops::attention
