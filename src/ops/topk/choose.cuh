// The K largest of a row and its State in one read, by a block, a cluster of blocks, or blocks all over the GPU.
//
// Every thread folds tiles of packs as a softmax does. A tile whose maximum is not above the limit costs one
// compare. Now and then, after one, two, four tiles and so on, the block meets and raises the limit; who found no
// room for what he had to offer looks at those tiles again.
#pragma once

#include "core/exponential.hpp"
#include "merge/operators.hpp"
#include "ops/row/drive.cuh"
#include "ops/row/logits.cuh"
#include "ops/topk/best.cuh"
#include "ops/topk/select.hpp"

namespace onepass::ops::topk {

// What a part of a row comes to: its State, its largest element as it is stored, and how many elements come
// before the target.
struct Tally {
  State<float> state;
  float largest;
  unsigned before;
};

struct MergeTallies {
  using Value = Tally;
  __device__ static Value identity() {
    return {onepass::identity<float>(), minus_infinity<float>(), 0};
  }
  __device__ Value operator()(const Value& a, const Value& b) const {
    return {merge(a.state, b.state), fmaxf(a.largest, b.largest), a.before + b.before};
  }
};

__device__ inline Tally group_fold(const Tally& mine, MergeTallies, int lanes) {
  return {onepass::group_fold(mine.state, Merge<float>(), lanes),
          onepass::group_fold(mine.largest, Largest<float>(), lanes),
          onepass::group_fold(mine.before, Add<unsigned>(), lanes)};
}

// A row to choose from. A dense one may have a positive factor between what is stored and z: elements are
// compared as they are stored, and only exponentials see the factor.
template <class In, class Out>
class ChooseRow {
 public:
  using Logits = LogitsFor<In, Out>;
  using Args = typename Logits::Args;
  using Stored = typename Logits::Stored;
  using Held = typename Logits::Held;
  static constexpr int kLanes = Logits::kLanes;
  static constexpr bool kAny = std::is_void_v<Out>;
  static constexpr int kPacks = gpu_choose::packs_each(kAny);  // a thread, at a time

  __device__ ChooseRow(const Args& args, std::int64_t row, double scale, double temperature)
      : logits_(make(args, row, temperature)),
        factor_(kAny ? 1.0F : static_cast<float>(scale / temperature)) {}

  __device__ int packs() const { return logits_.packs(); }
  __device__ Stored fetch(int i) const { return logits_.fetch(i); }
  __device__ static Stored nothing() { return Logits::nothing(); }
  __device__ Held hold(const Stored& stored, int i, int end) const {
    return logits_.hold(stored, i, end);
  }
  __device__ int edges() const { return logits_.edges(); }
  __device__ float edge(int e) const { return Logits::value(logits_.fetch_edge(e)); }
  __device__ std::int64_t column(int i) const { return logits_.column(i); }
  __device__ std::int64_t edge_column(int e) const { return logits_.edge_column(e); }
  __device__ static void values(const Held& held, float (&x)[kLanes]) { Logits::values(held, x); }
  __device__ float at(std::int64_t c) const { return logits_.at(c); }

  // The largest of a pack, NaN not counting.
  __device__ static float largest(const Held& held) {
    const Held one[1] = {held};
    const float m = Logits::largest(one);
    return m == m ? m : minus_infinity<float>();
  }

  // z of an element as it is stored.
  __device__ float z(float x) const { return x * factor_; }

  template <int P>
  __device__ Tally fold(const Held (&held)[P], int live) const {
    const float m = Logits::largest(held);
    const float s = shift(m);
    const float rate = factor_ * kLog2E;
    float d = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p >= live) break;
      float x[kLanes];
      values(held[p], x);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) d += power_of_two((x[k] - s) * rate);
    }
    return {{z(m), d}, m == m ? m : minus_infinity<float>(), 0};
  }
  __device__ Tally fold_one(float x) const {
    return {leaf(z(x)), x == x ? x : minus_infinity<float>(), 0};
  }

 private:
  __device__ static Logits make(const Args& args, std::int64_t row, double temperature) {
    if constexpr (kAny) {
      return Logits(args, row, temperature);
    } else {
      return Logits(args, row);
    }
  }

  Logits logits_;
  float factor_;
};

// The address of a row, called and not inlined: rows of any rank are found by divisions, and a kernel asks
// for many.
static __device__ __noinline__ void* address_of(const RowSpace& space, const Operand& operand,
                                                std::int64_t row) {
  return row_data(space, operand, row);
}

// A row's own value, or that of all.
template <class T>
__device__ inline T value_for(const RowSpace& space, const EachRow<T>& each, std::int64_t row) {
  return each.rows ? read<T>(address_of(space, each.rows, row), each.rows.dtype, 0) : each.value;
}

// The token whose place is asked for. Hidden, or none of the row's, it has −inf.
struct Target {
  int index = -1;
  float x = minus_infinity<float>();

  // Whether an element comes before it.
  __device__ bool follows(float other, int column) const {
    return other > x || (other == x && column < index && column >= 0);
  }
};

// One block's packs [begin, end) of a row, a tile of Row::kPacks a thread at a time. Columns are below 2^31.
template <class Row>
class Part {
 public:
  static constexpr int P = Row::kPacks;
  using Tile = typename Row::Held[P];

  // The first part has the row's edges.
  __device__ Part(const Row& row, int size, int index) : row_(row), has_edges_(index == 0) {
    begin_ = min(size * index, row.packs());
    end_ = min(begin_ + size, row.packs());
  }

  // body(element, column, whether there is one) for the edges, by whole blocks.
  template <class Body>
  __device__ void edges(Body body) const {
    if (!has_edges_) return;
#pragma unroll 1
    for (int e = 0; e < row_.edges(); e += step()) {
      const bool has = e + thread() < row_.edges();
      body(has ? row_.edge(e + thread()) : minus_infinity<float>(),
           has ? static_cast<int>(row_.edge_column(e + thread())) : 0, has);
    }
  }

  __device__ Tally fold(const Tile& tile, int first) const {
    return row_.fold(tile, live_packs<P>(first - thread() % kWarp, step(), end_));
  }

  // The keys of the largest elements, and the tally of all.
  __device__ Tally gather(BestKeys& best, const Target& target, bool ranks) const {
    Tally mine = MergeTallies::identity();
    const int tile_step = P * step();
    const int last = (end_ - begin_ + tile_step - 1) / tile_step;
    int failed = -1;  // the first tile that found no room
    int meets = 1;    // the tile with which the block meets next
    int first = begin_ + thread();
#pragma unroll 1
    for (int turn = 1; turn <= last; ++turn, first += tile_step) {
      Tile tile;
      load(first, tile);
      const Tally folded = fold(tile, first);
      mine = MergeTallies()(mine, folded);
      if (ranks) mine.before += before(first, target);
      if (turn == meets) {
        meets *= 2;
        if (turn == 1 || last - turn >= turn) best.bound(mine.largest);
      }
      if (failed < 0 && folded.largest > value_of(best.limit())) {
        if (!offer<false>(best, tile, first)) failed = first;
      }
      if (turn + 1 == meets && __syncthreads_or(failed >= 0)) {
        best.raise(offer_again(*this, best, failed, first, mine.largest));
        failed = -1;
      }
    }
    if (__syncthreads_or(failed >= 0)) {
      best.raise(offer_again(*this, best, failed, first - tile_step, mine.largest));
    }
    edges([&](float x, int column, bool has) {
      mine = MergeTallies()(mine, row_.fold_one(x));
      if (ranks && has && target.follows(x, column)) ++mine.before;
      offer_one(best, x, column);
    });
    return mine;
  }

  __device__ bool is_one_tile() const { return end_ - begin_ <= P * step(); }

  // The same for a part that is one tile, where meet(tally) raises the limit before anything is offered.
  template <class Meet>
  __device__ void gather_once(BestKeys& best, const Target& target, bool ranks, Meet meet) const {
    const int first = begin_ + thread();
    Tile tile;
    load(first, tile);
    const Tally folded = fold(tile, first);
    Tally mine = folded;
    if (ranks) mine.before += before(first, target);
    edges([&](float x, int column, bool has) {
      mine = MergeTallies()(mine, row_.fold_one(x));
      if (ranks && has && target.follows(x, column)) ++mine.before;
    });
    meet(mine);
    bool failed = false;
    if (folded.largest > value_of(best.limit())) failed = !offer<false>(best, tile, first);
    if (__syncthreads_or(failed)) {
      best.raise(offer_again(*this, best, failed ? first : -1, first, mine.largest));
    }
    edges([&](float x, int column, bool) { offer_one(best, x, column); });
    __syncthreads();
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int step() { return static_cast<int>(blockDim.x); }

  __device__ void fetch(int first, typename Row::Stored (&stored)[P]) const {
    if (!Row::kAny && has_all<P>(first, step(), end_)) {
#pragma unroll
      for (int p = 0; p < P; ++p) stored[p] = row_.fetch(first + p * step());
    } else {
#pragma unroll
      for (int p = 0; p < P; ++p) {
        stored[p] = first + p * step() < end_ ? row_.fetch(first + p * step()) : Row::nothing();
      }
    }
  }

  __device__ void load(int first, Tile& tile) const {
    typename Row::Stored stored[P];
    fetch(first, stored);
#pragma unroll
    for (int p = 0; p < P; ++p) tile[p] = row_.hold(stored[p], first + p * step(), end_);
  }

  // Elements of a tile that come before the target. The packs are taken anew, out of the nearest cache: few
  // ask for a rank, and the others should not carry its code through the loop.
  __device__ unsigned before(int first, const Target& target) const {
    unsigned count = 0;
#pragma unroll 1
    for (int p = 0; p < P; ++p) {
      const int i = first + p * step();
      if (i >= end_) break;
      float x[Row::kLanes];
      Row::values(row_.hold(row_.fetch(i), i, end_), x);
      const auto column = static_cast<int>(row_.column(i));
#pragma unroll
      for (int k = 0; k < Row::kLanes; ++k) count += target.follows(x[k], column + k) ? 1 : 0;
    }
    return count;
  }

  // Until every thread has had room for what it offers.
  template <class Offer>
  __device__ static void offer_until(BestKeys& best, Offer offer) {
    bool waits = !offer();
    while (__syncthreads_or(waits)) {
      best.cut(best.k() + best.k() / 4);
      if (waits) waits = !offer();
    }
  }

  __device__ static void offer_one(BestKeys& best, float x, int column) {
    const Key key = x > minus_infinity<float>() ? key_of(x, static_cast<unsigned>(column)) : 0;
    offer_until(best, [&] {
      if (key <= best.limit()) return true;
      Key* place = best.place_if_room(1);
      if (place != nullptr) *place = key;
      return place != nullptr;
    });
  }

  // The tiles from the first that found no room, −1 for none, up to the last, once more. Called, not inlined:
  // what is rare should not take the loop's registers. The limit afterwards.
  __device__ __noinline__ static Key offer_again(Part part, BestKeys best, int failed, int last,
                                                 float largest_yet) {
    best.bound(largest_yet);
    offer_until(best, [&] {
      for (; failed >= 0 && failed <= last; failed += P * step()) {
        Tile tile;
        part.load(failed, tile);
        if (!part.template offer<true>(best, tile, failed)) return false;
      }
      return true;
    });
    return best.limit();
  }

  // The elements of a tile that are above the limit; false where they found no room. Those of equal value came
  // later than all that the limit was made of, unless it was made while this tile waited. The few packs that
  // have one are read again: registers have no index.
  template <bool Again>
  __device__ bool offer(BestKeys& best, const Tile& tile, int first) const {
    const Key limit = best.limit();
    const float v = value_of(limit);
    unsigned packs = 0;  // a bit each
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const float m = Row::largest(tile[p]);
      packs |= m > v || (Again && m == v && m > minus_infinity<float>()) ? 1U << p : 0U;
    }
    const auto for_passing = [&](auto body) {
#pragma unroll 1
      for (unsigned rest = packs; rest != 0; rest &= rest - 1) {
        const int i = first + (__ffs(static_cast<int>(rest)) - 1) * step();
        float x[Row::kLanes];
        Row::values(row_.hold(row_.fetch(i), i, end_), x);
        const auto column = static_cast<int>(row_.column(i));
#pragma unroll
        for (int k = 0; k < Row::kLanes; ++k) {
          if (!(Again ? x[k] >= v && x[k] > minus_infinity<float>() : x[k] > v)) continue;
          const Key key = key_of(x[k], static_cast<unsigned>(column + k));
          if (!Again || key > limit) body(key);
        }
      }
    };
    int count = 0;
    for_passing([&](Key) { ++count; });
    if (count == 0) return true;
    Key* to = best.place_if_room(count);
    if (to == nullptr) return false;
    for_passing([&](Key key) { *to++ = key; });
    return true;
  }

  Row row_;
  bool has_edges_;
  int begin_, end_;
};

// What the launch says of the rows, beside their own arguments.
struct Common {
  RowSpace space;
  std::int64_t first_row;
  double scale;                 // of dense rows; any others find it in their arguments
  EachRow<double> temperature;  // of all
  int size;                     // packs a part
};

}  // namespace onepass::ops::topk
