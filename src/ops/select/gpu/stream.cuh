// A row that streams through one warp, or through a few.
#pragma once

#include "ops/select/gpu/launch.cuh"
#include "ops/select/gpu/row_warps.cuh"
#include "ops/select/gpu/stream_plan.hpp"
#include "ops/select/gpu/warp_keys.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::select {

template <class In>
using StreamRow = SelectRow<In, In, gpu_select::kStreamPacks>;

// A warp's stages of a row in its shared memory, one at a time. Every lane copies its own packs,
// two stages ahead, and waits for no other's.
template <class Row, class Warps>
class LaneStages {
 public:
  static constexpr int P = Row::kPacks;
  static constexpr int kSlots = gpu_select::kStreamStages;
  static constexpr int kSize = P * kWarp;  // packs
  using Held = typename Row::Held;
  using Tile = Held[P];

  __device__ LaneStages(std::byte* memory, const Row& row)
      : memory_(in_register(reinterpret_cast<Held*>(memory)) + thread()),
        row_(row),
        begin_(Warps::place() * kSize),
        step_(Warps::places() * kSize),
        next_(row.address(begin_ + thread())),
        left_(row.packs() - begin_ - thread()) {
#pragma unroll
    for (int c = 0; c < kSlots; ++c) ask(c);
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ static int step() { return kWarp; }
  __device__ int first(int c) const { return begin_ + c * step_; }
  __device__ int packs(int c) const { return min(kSize, row_.packs() - first(c)); }  // perhaps none
  __device__ bool is_last(int c) const { return first(c + 1) >= row_.packs(); }
  // The lane's packs, 32 apart.
  __device__ const Held* own(int c) const { return memory_ + c % kSlots * kSize; }
  __device__ const Held& pack(int c, int i) const { return own(c)[i - thread()]; }

  // Once they are there.
  __device__ void take(int c, Tile& tile) const {
    wait_for_copies_but<kSlots - 1>();
    const Held* at = own(c);
    const int n = left(c);
#pragma unroll
    for (int p = 0; p < P; ++p) tile[p] = at[p * kWarp];
    if (n > kSize - kWarp) return;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p * kWarp >= n) tile[p] = Row::nothing();
    }
  }

  // The lane has looked at stage c.
  __device__ void leave(int c) { ask(c + kSlots); }

 private:
  // Packs from the lane's first of the stage to the end of the row.
  __device__ int left(int c) const { return row_.packs() - first(c) - thread(); }

  // Stages are asked for one after the other: where the next one is need not be worked out from its
  // number each time.
  __device__ void ask(int c) {
    Held* to = memory_ + c % kSlots * kSize;
    if (left_ > kSize - kWarp) {
#pragma unroll
      for (int p = 0; p < P; ++p) copy_async(next_ + p * kWarp, to + p * kWarp);
    } else {
#pragma unroll
      for (int p = 0; p < P - 1; ++p) {
        if (p * kWarp < left_) copy_async(next_ + p * kWarp, to + p * kWarp);
      }
    }
    next_ += step_;
    left_ -= step_;
    commit_copies();
  }

  Held* memory_;
  const Row& row_;
  int begin_, step_;  // packs: to the warp's first stage, and from one of its stages to the next
  const Held* next_;  // the lane's first pack of the next stage to ask for,
  int left_;          // and how many there are from it to the end of the row
};

// The State of what a thread has seen. A sum is of powers against what was the largest when
// it was begun: it goes on while nothing is far above that, and not for so long that its
// rounding would add up.
template <class Row>
class RunningState {
 public:
  __device__ explicit RunningState(const Row& row) : row_(row) {}

  // The c-th; `m` is the largest of it, or NaN.
  template <class Tile>
  __device__ void add(const Tile& tile, float m, int c) {
    if (!(m <= far_) || c % kTogether == 0) {
      before_ = all();
      s_ = m;
      far_ = row_.beyond(m, kFar);
      d_ = 0;
    }
    d_ += row_.sum(tile, shift(s_));
  }

  // Its m is what sums were counted from: near the largest, not always it.
  __device__ State<float> all() const { return merge(before_, {row_.z(s_), d_}); }

 private:
  static constexpr float kFar = 16;  // of z: a thread's sum is below its count times e^16
  static constexpr int kTogether = 64;

  const Row& row_;
  State<float> before_ = identity<float>();
  float s_ = minus_infinity<float>();
  float far_ = minus_infinity<float>();
  float d_ = 0;
};

// The row's State and its K largest, by all threads of a block or of a cluster.
template <class Warps, class Row>
__device__ inline Selected stream_row(const Row& row, int k, const Target& target, bool ranks) {
  using Element = typename Row::Element;
  using Keys = WarpKeys<gpu_select::kStreamKeys>;
  using RowStages = LaneStages<Row, Warps>;
  constexpr int kHalf = Row::kPacks / 2;
  extern __shared__ __align__(16) std::byte memory[];
  constexpr int kStagesBytes = gpu_select::kStreamStagesBytes;
  static_assert(Row::kPacks == gpu_select::kStreamPacks);
  std::byte* const keys_memory = memory + Warps::count() * kStagesBytes;
  const auto lane = RowStages::thread();
  RowStages stages(memory + Warps::index() * kStagesBytes, row);
  const Warps warps(keys_memory + Warps::count() * Keys::kRoom * sizeof(Key), k);
  Keys best(reinterpret_cast<Key*>(keys_memory) + Warps::index() * Keys::kRoom, k);

  const bool own = Warps::place() == 0 && lane < row.edges();
  const float edge = own ? row.edge(lane) : minus_infinity<float>();
  const auto edge_column = static_cast<int>(row.edge_column(lane));
  RunningState<Row> state(row);
  unsigned before = ranks && own && target.follows(edge, edge_column) ? 1 : 0;
  GroupMaxima<Element, gpu_select::kStreamGroups> shown;
#pragma unroll 1
  for (int c = 0;; ++c) {
    typename RowStages::Tile tile;
    stages.take(c, tile);
    state.add(tile, shown.add(tile), c);
    if (ranks) before += before_target(row, stages, c, target);
    const bool last = stages.is_last(c);
    unsigned bits[2];  // of each half of the packs
    const auto find = [&] {
      bits[0] = above<0, kHalf>(tile, best.value());
      bits[1] = above<kHalf, kHalf>(tile, best.value());
    };
    find();
    if (c == 0 || (Warps::kAlone && last) || !best.has_room(bits)) {
      warps.show(shown);
      if (c == 0) warps.meet();
      warps.bound(best, shown, c == 0 ? Warps::kFirst : Warps::kBetween);
      find();
    }
    const auto* elements = reinterpret_cast<const Element*>(stages.own(c));
    const unsigned from = ~static_cast<unsigned>(row.column(stages.first(c) + lane));
    best.offer(bits, [&](int half, int bit) {
      const int further = half * kHalf * kWarp * Row::kLanes;
      const int e = element_of_bit<Element, kWarp>(bit);
      return key_before(widen(elements[further + e]), from - further, e);
    });
    if (last) break;
    stages.leave(c);
  }
  unsigned edges[2] = {own && edge >= best.value() ? 1U : 0U, 0};
  best.offer(edges, [&](int, int) { return key_of(edge, static_cast<unsigned>(edge_column)); });

  warps.show(shown);
  Selected selected{.total =
                        warps.fold(Tally{merge(state.all(), row.fold_one(edge).state), before})};
  if constexpr (!Warps::kAlone) {  // now that all have seen all of it
    warps.hear();
    warps.bound(best, shown, Warps::kLast);
  }
  // No warp needs the stages any more.
  warps.order(best, step_of_words<Element>(), reinterpret_cast<Key*>(memory), selected);
  selected.count = min(selected.count, k);
  return selected;
}

// Calls body(Type<Row>, Type<Warps>).
template <class Body>
Status with_stream(const RowArgs& args, const gpu_select::StreamLaunch& stream, Body body) {
  return with_stored(args, [&]<class In>(Type<In>) {
    return stream.warps() == 1 ? body(Type<StreamRow<In>>{}, Type<OneWarp>{})
                               : body(Type<StreamRow<In>>{}, Type<SeveralWarps>{});
  });
}

}  // namespace onepass::ops::select
