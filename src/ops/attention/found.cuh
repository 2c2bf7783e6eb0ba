// What warps found of the same rows among different keys, as one: those of a block through its shared memory, the blocks
// of a cluster through each other's.
#pragma once

#include "dispatch/attention_launch.hpp"
#include "merge/cluster.cuh"
#include "ops/attention/packed.cuh"

namespace onepass::ops::attention {

// Neighbouring columns of a row.
struct alignas(16) Four {
  float x, y, z, w;

  ONEPASS_HD Four operator*(float by) const { return {x * by, y * by, z * by, w * by}; }
  ONEPASS_HD Four operator+(const Four& o) const { return {x + o.x, y + o.y, z + o.z, w + o.w}; }
};

using FoundFour = Weighted<float, Four>;

// In shared memory; `joined` are the states that all teams of the block have together, whose sums are in the first's
// place.
template <int Rows, int Columns>
struct Found {
  State<float> states[Rows], joined[Rows];
  alignas(16) float sums[Rows][Columns + attention_launch::kFoundPadding];

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

  __device__ Four& four(int row, int column) {
    return *reinterpret_cast<Four*>(&sums[row][column]);
  }
};

// The rows of a block, when each of its teams has left what it found `stride` bytes after the one before.
template <int Rows, int Columns>
class FoundRows {
 public:
  __device__ FoundRows(std::byte* memory, int teams, int stride)
      : memory_(memory), teams_(teams), stride_(stride) {}

  __device__ Found<Rows, Columns>& of_team(int team) const {
    return *reinterpret_cast<Found<Rows, Columns>*>(memory_ + team * stride_);
  }

  // By all threads of a cluster: body(row, column, found) for each four columns of `count` rows, once. Always merged in
  // the same order, whoever was done first.
  template <class Body>
  __device__ void each(int count, Body&& body) const {
    constexpr int kFours = Columns / 4;
    const int blocks = cluster::size();
    const auto threads = static_cast<int>(blockDim.x);
    const auto thread = static_cast<int>(threadIdx.x);
    __syncthreads();
    if (blocks > 1) {
      for (int i = thread; i < count * kFours; i += threads) {
        join_in_place(i / kFours, i % kFours * 4);
      }
      cluster::meet();
    }
    for (int i = cluster::rank() * threads + thread; i < count * kFours; i += blocks * threads) {
      const int row = i / kFours;
      const int column = i % kFours * 4;
      body(row, column, blocks > 1 ? of_blocks(row, column, blocks) : of_teams(row, column));
    }
    if (blocks > 1) cluster::meet();  // nobody leaves while another reads
  }

 private:
  __device__ FoundFour of_teams(int row, int column) const {
    FoundFour all = {of_team(0).states[row], of_team(0).four(row, column)};
    for (int team = 1; team < teams_; ++team) {
      all = merge(all, FoundFour{of_team(team).states[row], of_team(team).four(row, column)});
    }
    return all;
  }

  __device__ void join_in_place(int row, int column) const {
    const FoundFour all = of_teams(row, column);
    of_team(0).four(row, column) = all.sum;
    if (column == 0) of_team(0).joined[row] = all.state;
  }

  __device__ FoundFour of_blocks(int row, int column, int blocks) const {
    const State<float>* state = &of_team(0).joined[row];
    const Four* sum = &of_team(0).four(row, column);
    FoundFour all = {*cluster::of_block(state, 0), *cluster::of_block(sum, 0)};
#pragma unroll 4
    for (int block = 1; block < blocks; ++block) {
      all = merge(all, FoundFour{*cluster::of_block(state, block), *cluster::of_block(sum, block)});
    }
    return all;
  }

  std::byte* memory_;
  int teams_, stride_;
};

// Four columns of a row to o, with its lse, or to where the parts of the row meet.
template <class Stored>
__device__ inline void put(const PackedRows& rows, const Parts& parts, int part, int row,
                           int column, const FoundFour& found) {
  const AttentionArgs& a = rows.a;
  const std::int64_t query = rows.s.q_first + rows.query(row);
  const int head = rows.head(row);
  if (parts.count > 1) {
    const std::int64_t place =
        parts.place(part, row_number(a, a.q_offsets ? 0 : rows.b, head, query));
    *reinterpret_cast<Four*>(parts.means + place * parts.dim + column) = mean(found);
    if (column == 0) parts.lse[place] = logsumexp(found.state);
    return;
  }
  const State<float> all = with_sink(a, found.state, head);
  const Four o = found.sum * factor(all, found.state.m);
  const std::int64_t at = a.o.offset(rows.b, head, query) + column;
  write(a.o.data, a.o.dtype, at, o.x);
  write(a.o.data, a.o.dtype, at + 1, o.y);
  write(a.o.data, a.o.dtype, at + 2, o.z);
  write(a.o.data, a.o.dtype, at + 3, o.w);
  if (column == 0) write_lse(rows, row, all);
}

}  // namespace onepass::ops::attention
