// What the parts of the keys found of a row, as one: a block a row. Always in the same order, whoever was done first.

#include <cuda_runtime.h>

#include <algorithm>

#include "core/dependent.cuh"
#include "core/divisor.hpp"
#include "ops/attention/found.cuh"
#include "ops/attention/parts.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kMostGroups = 8;

// Threads in groups of as many as a row has fours: each group joins every so-manieth part, and the first all groups.
struct JoinPlaces {
  Divisor queries, heads;  // of a row's number
  Divisor fours, groups;

  explicit JoinPlaces(const AttentionArgs& a)
      : queries(static_cast<int>(a.queries)),
        heads(static_cast<int>(a.heads)),
        fours(a.dim / 4),
        groups(std::min(kThreads / fours, kMostGroups)) {}
};

__global__ __launch_bounds__(kThreads) void join(const __grid_constant__ AttentionArgs a,
                                                 const Parts parts, const JoinPlaces grid) {
  __shared__ FoundFour of_groups[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto row = static_cast<int>(blockIdx.x);
  const int query = row % grid.queries;
  const int head = row / grid.queries % grid.heads;
  const int batch = row / grid.queries / grid.heads;
  const int group = thread / grid.fours;
  const int column = thread % grid.fours * 4;
  await_previous();
  if (a.q_offsets && query >= a.q_offsets[a.batch]) return;  // of no sequence

  const auto of_part = [&](int part) {
    const std::int64_t place = parts.place(part, row);
    const float lse = parts.lse[place];
    const Four mean = *reinterpret_cast<const Four*>(parts.means + place * a.dim + column);
    // Of a part that saw nothing the mean may be NaN all the same.
    return lse == minus_infinity<float>() ? FoundFour{identity<float>(), {0, 0, 0, 0}}
                                          : leaf(lse, mean);
  };
  if (group < grid.groups) {
    const int own = (parts.count - group + grid.groups - 1) / grid.groups;
    of_groups[thread] = join_found<4>(own, [&](int i) { return of_part(group + i * grid.groups); });
  }
  __syncthreads();
  if (group != 0) return;
  const FoundFour found = join_found<kMostGroups>(
      grid.groups, [&](int i) { return of_groups[i * grid.fours + thread]; });
  const State<float> all = with_sink(a, found.state, head);
  write_mean(a, a.o.offset(batch, head, query) + column, found, all);
  if (a.lse && thread == 0) {
    write(a.lse.data, a.lse.dtype, a.lse.offset(batch, head, query), logsumexp(all));
  }
}

}  // namespace

Status join_parts(const AttentionArgs& a, const Parts& parts) {
  return launch({.queue = a.queue, .blocks = parts.rows, .threads = kThreads}, "join", join, a,
                parts, JoinPlaces(a));
}

}  // namespace onepass::ops::attention
