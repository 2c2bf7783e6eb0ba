// softmax and log_softmax of rows that begin and end with a pack, as most do: no edges, one op
// compiled in, and one exponential an element. Rows of a few thousand elements take as long as
// their instructions; without the rest they take as long as a copy. Which calls they take:
// gpu_rows::takes_whole.
#pragma once

#include "core/cuda/dependent.cuh"
#include "merge/cluster.cuh"
#include "merge/running.cuh"
#include "merge/warp_rows.cuh"
#include "rows/gpu/launch.cuh"
#include "rows/gpu/logits.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::softmax {

template <class T, bool Logs>
class WholeRow {
 public:
  using Args = FlatArgs;
  using Stored = Pack<T>;
  using Held = Pack<T>;
  using Partial = State<float>;
  static constexpr int kLanes = Pack<T>::kLanes;

  __device__ WholeRow(const Args& args, std::int64_t row)
      : args_(args), row_(row), x_(static_cast<const Stored*>(row_of(args, args.in, row))) {}

  __device__ Stored fetch(int i) const { return x_[i]; }
  __device__ static Held hold(const Stored& stored, int, int) { return stored; }
  __device__ static Stored nothing() { return DenseLogits<T>::nothing(); }

  // Of a thread's packs what is written of them, but for what only the row's total tells: exp(z −
  // m), m being their own maximum, or z − m.
  template <int P>
  struct Kept {
    float m;
    float value[P][kLanes];
  };

  template <int P>
  __device__ static Partial fold(const Held (&held)[P], int live, Kept<P>& kept) {
    kept.m = largest_or_nan(held);
    const float s = shift(kept.m);
    float d = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p >= live) break;
      widen({held[p]}, kept.value[p]);
      float weights[kLanes];
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        float& value = kept.value[p][k];
        value -= s;
        weights[k] = exponential(value);
        if (!Logs) value = weights[k];
      }
      d += pairwise_sum(weights);
    }
    return {kept.m, d};
  }

  // The packs first, first + step, … before `end`.
  template <int P>
  __device__ void finish(int first, int step, int end, const Kept<P>& kept,
                         const Partial& total) const {
    auto* y = static_cast<Pack<T>*>(row_of(args_, args_.out, row_));
    const float by = last_step(kept.m, total);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (first + p * step >= end) break;
      put(y, first + p * step, kept.value[p], by);
    }
  }

  // By one thread of the row.
  __device__ void conclude(const Partial& total) const {
    if (!args_.lse) return;
    write_like(row_of(args_, args_.lse, row_), args_.lse.dtype, 0, logsumexp(total));
  }

 private:
  // What takes a thread's values to the row's: a factor, or a term. A row of −inf
  // alone has a sum of 0.
  __device__ static float last_step(float m, const Partial& total) {
    if (!Logs) return factor(total, m);
    return (shift(m) - shift(total.m)) - (total.d == 0 ? 0 : log(total.d));
  }

  __device__ static void put(Pack<T>* y, int i, const float (&kept)[kLanes], float by) {
    float values[kLanes];
#pragma unroll
    for (int k = 0; k < kLanes; ++k) values[k] = Logs ? kept[k] + by : kept[k] * by;
    Pack<T> pack;
    narrow_words<T>(values, pack.word);
    y[i] = pack;
  }

  const Args& args_;
  std::int64_t row_;
  const Stored* x_;
};

// Blocks whose registers a processor is to have room for, where a thread keeps so many floats.
constexpr int whole_groups_at_once(int kept) { return kept > 16 ? 4 : 5; }
constexpr int whole_blocks_at_once(int kept) { return kept > 32 ? 1 : kept > 16 ? 2 : 3; }

// 2^lanes_log lanes per row, R rows a group of lanes: what group_rows is to any row.
template <class Row, int P, int R>
__global__ void __launch_bounds__(gpu_rows::kGroupThreads, whole_groups_at_once(R* P* Row::kLanes))
    whole_groups(const __grid_constant__ FlatArgs args, int lanes_log) {
  await_previous();
  const Group<R> group(lanes_log, args.end_row - args.first_row);
  const int lanes = group.lanes();
  const int lane = group.lane();
  const auto row_of_turn = [&](int r) { return Row(args, args.first_row + group.row(r)); };
  const auto end = static_cast<int>(args.cols / Row::kLanes);
  typename Row::Held held[R][P];
  typename Row::template Kept<P> kept[R];
  State<float> total[R];
#pragma unroll
  for (int r = 0; r < R; ++r) hold_packs(row_of_turn(r), lane, lanes, end, held[r]);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    total[r] = Row::fold(held[r], live_packs<P>(0, lanes, end), kept[r]);
  }
  switch (lanes) {  // a number that is known is no loop
    case kWarp: group_fold(total, Merge<float>(), kWarp); break;
    case kWarp / 2: group_fold(total, Merge<float>(), kWarp / 2); break;
    default: group_fold(total, Merge<float>(), lanes);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (!group.has(r)) return;
    const Row row = row_of_turn(r);
    row.finish(lane, lanes, end, kept[r], total[r]);
    if (lane == 0) row.conclude(total[r]);
  }
}

// A block per row, or a cluster of blocks, each with its chunk of `size` packs: block_rows.
template <class Row, int P, bool Clusters>
__global__ void __launch_bounds__(gpu_rows::kBlockThreads, whole_blocks_at_once(P* Row::kLanes))
    whole_blocks(const __grid_constant__ FlatArgs args, int size) {
  if constexpr (Clusters && !kHasClusters) return;
  using Fold = std::conditional_t<Clusters, ClusterFold<Merge<float>>, BlockMerge>;
  __shared__ typename Fold::Scratch scratch;
  const Fold of_block(scratch);
  await_previous();
  const int rank = Clusters ? cluster::rank() : 0;
  const Row row(args, args.first_row + (Clusters ? cluster::index() : blockIdx.x));
  const auto packs = static_cast<int>(args.cols / Row::kLanes);
  const int begin = min(size * rank, packs);
  const int end = min(begin + size, packs);
  const int first = begin + static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);
  typename Row::Held held[P];
  typename Row::template Kept<P> kept;
  hold_packs(row, first, step, end, held);
  const int of_warp = first - static_cast<int>(threadIdx.x) % kWarp;
  const State<float> mine = Row::fold(held, live_packs<P>(of_warp, step, end), kept);
  const State<float> total = of_block.all(mine);
  row.finish(first, step, end, kept, total);
  if (rank == 0 && threadIdx.x == 0) row.conclude(total);
}

// Calls body(Type<Row>).
template <class Body>
Status with_whole_row(const RowArgs& args, Body body) {
  const auto as = [&]<class Stored>(Type<Stored>) {
    return args.op == Op::softmax ? body(Type<WholeRow<Stored, false>>{})
                                  : body(Type<WholeRow<Stored, true>>{});
  };
  switch (args.logits.x.dtype) {
    case DType::f16: return as(Type<F16>{});
    case DType::bf16: return as(Type<BF16>{});
    default: return as(Type<float>{});
  }
}

}  // namespace onepass::ops::softmax
