// Partial results: warps that saw different keys of the same rows merge what they found through
// shared memory, their block's or, in a cluster, each other's.
#pragma once

#include "core/weighted.hpp"
#include "merge/cluster.cuh"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/flash/split_kv.hpp"
#include "ops/attention/gpu/packed.cuh"

namespace onepass::ops::attention {

// Neighbouring columns of a row.
struct alignas(16) Four {
  float x, y, z, w;

  ONEPASS_HD Four operator*(float by) const { return {x * by, y * by, z * by, w * by}; }
  ONEPASS_HD Four operator+(const Four& o) const { return {x + o.x, y + o.y, z + o.z, w + o.w}; }
};

using FoundFour = Weighted<float, Four>;

// In shared memory.
template <int Rows, int Columns>
struct Found {
  State<float> states[Rows];
  alignas(16) float sums[Rows][Columns + gpu_attention::kFoundPadding];

  // By the four lanes of a row, in the layout of the tensor cores.
  template <int Size>
  __device__ void leave(int row, const State<float>& seen, const float (&o)[Size], int r) {
    const auto lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < Size / 4; ++i) {
      *reinterpret_cast<float2*>(&sums[row][8 * i + 2 * lane]) =
          make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
    }
    if (lane == 0) states[row] = seen;
  }

  __device__ FoundFour four(int row, int column) const {
    return {states[row], *reinterpret_cast<const Four*>(&sums[row][column])};
  }
};

// Merges four columns of a row over all finders, of which the i-th found four(i), in their order
// whichever was finished first. Loads come in batches of Together.
template <int Together, class FourOf>
__device__ inline FoundFour merge_found(int finders, FourOf&& four) {
  FoundFour all{identity<float>(), {0, 0, 0, 0}};
#pragma unroll 1
  for (int begin = 0; begin < finders; begin += Together) {
    FoundFour some[Together];
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      some[i] = four(min(begin + i, finders - 1));
    }
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      if (begin + i < finders) all = merge(all, some[i]);
    }
  }
  return all;
}

// Writes the mean to o at an offset: `all` is the state of everything found, and of a sink if any.
__device__ inline void write_mean(const AttentionArgs& a, std::int64_t at, const FoundFour& found,
                                  const State<float>& all) {
  const Four o = found.sum * factor(all, found.state.m);
  with_type_for<float>(a.o.dtype, [&]<class Stored>(Type<Stored>) {
    Stored* const to = static_cast<Stored*>(a.o.data) + at;
    to[0] = store_as<Stored>(o.x);
    to[1] = store_as<Stored>(o.y);
    to[2] = store_as<Stored>(o.z);
    to[3] = store_as<Stored>(o.w);
  });
}

// Writes four columns of a row: to o, with its lse, or to the workspace where keys are split.
__device__ inline void put(const PackedRows& rows, const Partials& partials, int part, int row,
                           int column, const FoundFour& found) {
  const AttentionArgs& a = rows.a;
  const std::int64_t query = rows.s.q_first + rows.query(row);
  const int head = rows.head(row);
  if (partials.count > 1) {
    const std::int64_t place =
        partials.place(part, row_number(a, a.q_offsets ? 0 : rows.b, head, query));
    *reinterpret_cast<Four*>(partials.means + place * partials.dim + column) = mean(found);
    if (column == 0) partials.lse[place] = logsumexp(found.state);
    return;
  }
  const State<float> all = with_sink(a, found.state, head);
  write_mean(a, a.o.offset(rows.b, head, query) + column, found, all);
  if (column == 0) write_lse(rows, row, all);
}

// Leaves what a part found of a row in the workspace.
template <int Size>
__device__ inline void store_part(const Partials& partials, int part, const PackedRows& rows,
                                  int row, const float (&o)[Size], int r, const State<float>& seen,
                                  int column) {
  if (row >= rows.count()) return;
  const auto lane = static_cast<int>(threadIdx.x % 4);
  const bool offsets = static_cast<bool>(rows.a.q_offsets);
  const std::int64_t place = partials.place(
      part,
      row_number(rows.a, offsets ? 0 : rows.b, rows.head(row), rows.s.q_first + rows.query(row)));
  const float by = factor(seen, seen.m);
  float* to = partials.means + place * partials.dim + column + 2 * lane;
#pragma unroll
  for (int i = 0; i < Size / 4; ++i) {
    if (column + 8 * i < partials.dim) {
      *reinterpret_cast<float2*>(to + 8 * i) =
          make_float2(o[4 * i + 2 * r] * by, o[4 * i + 2 * r + 1] * by);
    }
  }
  if (column == 0 && lane == 0) partials.lse[place] = logsumexp(seen);
}

}  // namespace onepass::ops::attention
