// A row that streams through one warp, or through a few.
#pragma once

#include "ops/topk/launch.cuh"
#include "ops/topk/row_warps.cuh"
#include "ops/topk/warp_keys.cuh"

namespace onepass::ops::topk {

template <class In>
using StreamRow = ChooseRow<In, In, gpu_choose::stream_packs(sizeof(In))>;

// A warp's stages of a row in its shared memory, one at a time. Every lane copies its own packs, two stages ahead, and waits
// for nobody else's.
template <class Row, class Warps>
class LaneStages {
 public:
  static constexpr int P = Row::kPacks;
  static constexpr int kSlots = gpu_choose::kStreamStages;
  static constexpr int kSize = P * kWarp;  // packs
  using Held = typename Row::Held;
  using Tile = Held[P];

  __device__ LaneStages(std::byte* memory, const Row& row)
      : memory_(held(memory) + thread()),
        row_(row),
        next_(row.address(first(0) + thread())),
        left_(row.packs() - first(0) - thread()) {
#pragma unroll
    for (int c = 0; c < kSlots; ++c) ask(c);
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ static int step() { return kWarp; }
  __device__ int first(int c) const { return (c * Warps::count() + Warps::index()) * kSize; }
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
  // The same memory, whose address is now in a register: the compiler would make it anew at each use, by five instructions.
  __device__ static Held* held(std::byte* memory) {
    const unsigned address = __shfl_sync(0xFFFFFFFFU, shared_address(memory), 0);
    return static_cast<Held*>(__cvta_shared_to_generic(address));
  }
  // Packs from the lane's first of the stage to the end of the row.
  __device__ int left(int c) const { return row_.packs() - first(c) - thread(); }

  // Stages are asked for one after the other: where the next one is need not be worked out from its number each time.
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
    next_ += Warps::count() * kSize;
    left_ -= Warps::count() * kSize;
    commit_copies();
  }

  Held* memory_;
  const Row& row_;
  const Held* next_;  // the lane's first pack of the next stage to ask for,
  int left_;          // and how many there are from it to the end of the row
};

// The State of what a thread has seen. A sum is of powers against what was the largest when it was begun: it goes on while
// nothing is far above that, and not for so long that its rounding would add up.
template <class Row>
class RunningState {
 public:
  __device__ RunningState(const Row& row, const State<float>& begun) : row_(row), before_(begun) {}

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
  State<float> before_;
  float s_ = minus_infinity<float>();
  float far_ = minus_infinity<float>();
  float d_ = 0;
};

// The row's State and its K largest, by all threads of a block.
template <class Warps, class Row>
__device__ inline Chosen stream_row(const Row& row, int k, const Target& target, bool ranks) {
  using Element = typename Row::Element;
  using Keys = WarpKeys<gpu_choose::stream_keys(sizeof(Element))>;
  using RowStages = LaneStages<Row, Warps>;
  static_assert(Row::kGroups == gpu_choose::kStreamGroups);
  extern __shared__ __align__(16) std::byte memory[];
  constexpr int kStagesBytes = gpu_choose::kStreamStages * kWarp * Row::kPacks * kPackBytes;
  std::byte* const keys_memory = memory + Warps::count() * kStagesBytes;
  const auto lane = RowStages::thread();
  RowStages stages(memory + Warps::index() * kStagesBytes, row);
  const Warps warps(keys_memory + Warps::count() * Keys::kRoom * sizeof(Key));
  Keys best(reinterpret_cast<Key*>(keys_memory) + Warps::index() * Keys::kRoom, k);

  const bool own = static_cast<int>(threadIdx.x) < row.edges();
  const float edge = own ? row.edge(lane) : minus_infinity<float>();
  const auto edge_column = static_cast<int>(row.edge_column(lane));
  RunningState<Row> state(row, row.fold_one(edge).state);
  unsigned before = ranks && own && target.follows(edge, edge_column) ? 1 : 0;
  unsigned largest[Row::kPacks];
#pragma unroll
  for (unsigned& word : largest) word = Row::nothing().word[0];
  unsigned shown[Row::kGroups];
  const auto show = [&] {
#pragma unroll
    for (int g = 0; g < Row::kGroups; ++g) shown[g] = Keys::shown(widened<Element>(largest, g));
  };
#pragma unroll 1
  for (int c = 0;; ++c) {
    typename RowStages::Tile tile;
    stages.take(c, tile);
    unsigned m[Row::kPacks];
    maxima_or_nan(tile, m);
    state.add(tile, largest_or_nan<Element>(m), c);
#pragma unroll
    for (int p = 0; p < Row::kPacks; ++p) largest[p] = larger_word<Element>(largest[p], m[p]);
    if (ranks) before += before_target(row, stages, c, target);
    const bool last = stages.is_last(c);
    unsigned bits = above(tile, best.value());
    if (c == 0 || (Warps::kAlone && last) || !best.has_room(bits)) {
      show();
      if (c == 0) warps.meet(shown);
      warps.share(shown);
      best.bound(shown);
      bits = above(tile, best.value());
    }
    const auto* elements = reinterpret_cast<const Element*>(stages.own(c));
    const auto column = static_cast<unsigned>(row.column(stages.first(c) + lane));
    best.offer(bits, [&](unsigned bit) {
      const unsigned e = element_of_bit<Element, kWarp>(bit);
      return key_of(widen(elements[e]), column + e);
    });
    if (last) break;
    stages.leave(c);
  }
  best.offer(own && edge >= best.value() ? 1 : 0,
             [&](unsigned) { return key_of(edge, static_cast<unsigned>(edge_column)); });

  show();
  warps.show(shown);
  const Tally total = warps.fold(Tally{state.all(), before});
  if constexpr (!Warps::kAlone) {  // now that all have seen all of it
    warps.share(shown);
    best.bound(shown);
  }
  Chosen chosen{.total = total, .mine = true};
  // Nobody needs the stages any more.
  chosen.keys = warps.order(best, reinterpret_cast<Key*>(memory), chosen.count);
  chosen.count = min(chosen.count, k);
  return chosen;
}

// Calls body(Type<Row>, Type<Warps>).
template <class Body>
Status with_stream(const RowArgs& args, const Plan& plan, Body body) {
  return with_stored(args, [&]<class In>(Type<In>) {
    return plan.threads == kWarp ? body(Type<StreamRow<In>>{}, Type<OneWarp>{})
                                 : body(Type<StreamRow<In>>{}, Type<SeveralWarps>{});
  });
}

}  // namespace onepass::ops::topk
