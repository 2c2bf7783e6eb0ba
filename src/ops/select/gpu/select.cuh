// The K largest of a row and its State in one read, by a block, a cluster of blocks, or blocks
// all over the GPU.
//
// A row comes through shared memory in stages. Every thread folds its packs as a softmax does;
// where their maximum is not above the limit, that one compare is all. The others' are noted, and
// the block looks at the elements of noted packs, a thread per pack. Now and then, after one, two,
// four stages and so on, it meets to raise the limit.
#pragma once

#include "core/exponential.hpp"
#include "merge/operators.hpp"
#include "merge/running.cuh"
#include "ops/select/gpu/best.cuh"
#include "ops/select/gpu/place.cuh"
#include "ops/select/gpu/stages.cuh"
#include "rows/gpu/drive.cuh"
#include "rows/gpu/logits.cuh"

namespace onepass::ops::select {

// What a part of a row comes to: its State, and how many elements come before the target.
struct alignas(16) Tally {
  State<float> state;
  unsigned before;
  int count;  // of the keys that come with it; no initialiser: shared memory has no constructors
};

struct MergeTallies {
  using Value = Tally;
  __device__ static Value identity() { return {onepass::identity<float>(), 0}; }
  __device__ Value operator()(const Value& a, const Value& b) const {
    return {merge(a.state, b.state), a.before + b.before};
  }
};

__device__ inline Tally group_fold(const Tally& mine, MergeTallies, int lanes) {
  return {onepass::group_fold(mine.state, Merge<float>(), lanes),
          onepass::group_fold(mine.before, Add<unsigned>(), lanes)};
}

// What a thread's packs come to: their State, and the largest as it is stored; −inf where a NaN is.
struct Folded {
  State<float> state;
  float largest;
};

// A row to select from. A dense one may have a positive factor between what is stored and z:
// elements are compared as they are stored, and only exponentials see the factor.
template <class In, class Out,
          int Packs = std::is_void_v<Out> ? gpu_select::kGeneralPacks : gpu_select::kFewPacks>
class SelectRow {
 public:
  using Element = In;
  using Logits = LogitsFor<In, Out>;
  using Args = typename Logits::Args;
  using Stored = typename Logits::Stored;
  using Held = typename Logits::Held;
  static constexpr int kLanes = Logits::kLanes;
  static constexpr bool kAny = std::is_void_v<Out>;
  using Place = std::conditional_t<kAny, Operand, FlatPlace>;  // of what there is beside the row
  static constexpr int kPacks = Packs;                         // a thread, at a time
  // Large blocks whose registers a processor is to have room for.
  static constexpr int kBlocksAtOnce = Packs == gpu_select::kFewPacks ? 2 : 1;

  // `factor`: of a dense row; any other finds scale and temperature itself.
  __device__ SelectRow(const Args& args, std::int64_t row, float factor, double temperature)
      : logits_(make(args, row, temperature)), factor_(kAny ? 1.0F : factor) {}

  // The same row with the usual number of packs, for what does not depend on it and
  // is compiled once.
  using Usual = SelectRow<In, Out>;
  __device__ Usual usual() const { return Usual(logits_, factor_); }

  __device__ int packs() const { return logits_.packs(); }
  __device__ Stored fetch(int i) const { return logits_.fetch(i); }
  __device__ const Stored* address(int i) const { return logits_.address(i); }
  __device__ static Stored nothing() { return Logits::nothing(); }
  __device__ Held hold(const Stored& stored, int i, int end) const {
    return logits_.hold(stored, i, end);
  }
  __device__ int edges() const { return logits_.edges(); }
  __device__ float edge(int e) const { return Logits::value(logits_.fetch_edge(e)); }
  __device__ std::int64_t column(int i) const { return logits_.column(i); }
  __device__ std::int64_t edge_column(int e) const { return logits_.edge_column(e); }
  __device__ static void values(const Held& held, float (&x)[kLanes]) { Logits::values(held, x); }
  // One of them, of a pack in memory.
  __device__ static float value(const Held& held, int k) { return Logits::value_in(held, k); }
  __device__ float at(std::int64_t c) const { return logits_.at(c); }

  // Four elements at a multiple of four, in one load where rows begin at such an address.
  __device__ bool fours_are_aligned() const { return !kAny && packs() > 0 && column(0) % 4 == 0; }
  __device__ void four(int first, float (&x)[4]) const {
    if constexpr (!kAny) {
      struct alignas(4 * sizeof(In)) Four {
        unsigned word[sizeof(In)];
      };
      const auto* row = reinterpret_cast<const In*>(address(0)) - column(0);
      const Four loaded = *reinterpret_cast<const Four*>(row + first);
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = widened<In>(loaded.word, k);
    }
  }

  __device__ static float largest_or_nan(const Held& held) {
    const Held one[1] = {held};
    return Logits::largest(one);
  }

  template <int P>
  __device__ static float largest(const Held (&held)[P]) {
    return Logits::largest(held);
  }

  // z of an element as it is stored.
  __device__ float z(float x) const { return x * factor_; }
  __device__ float factor() const { return factor_; }

  template <int P>
  __device__ Folded fold(const Held (&held)[P]) const {
    const float m = Logits::largest(held);
    return {{z(m), sum(held, shift(m))}, m == m ? m : minus_infinity<float>()};
  }

  // What e to the power of z − z(s) comes to. The exponent of an element is one multiply-add, x ·
  // rate − s · rate: the rounding of s · rate is the same for all and is taken out of their sum.
  // Far from 0 it would be too much for that, and x − s comes first.
  template <int P>
  __device__ float sum(const Held (&held)[P], float s) const {
    const float rate = factor_ * kLog2E;
    const float from = s * rate;
    const auto of = [&](auto exponent) {
      float d = 0;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        float x[kLanes];
        values(held[p], x);
#pragma unroll
        for (float& each : x) each = power_of_two(exponent(each));
        d += pairwise_sum(x);
      }
      return d;
    };
    return fabsf(from) < 0x1p20F ? of([&](float x) { return fmaf(x, rate, -from); }) *
                                       power_of_two(-fmaf(s, rate, -from))
                                 : of([&](float x) { return (x - s) * rate; });
  }
  // The x whose z is so much above that of s.
  __device__ float beyond(float s, float more) const { return s + more / factor_; }

  __device__ Folded fold_one(float x) const {
    return {leaf(z(x)), x == x ? x : minus_infinity<float>()};
  }

 private:
  template <class, class, int>
  friend class SelectRow;
  __device__ SelectRow(const Logits& logits, float factor) : logits_(logits), factor_(factor) {}

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

// The token whose place is asked for. Hidden, or none of the row's, it has −inf.
struct Target {
  int index = -1;
  float x = minus_infinity<float>();

  // Whether an element comes before it.
  __device__ bool follows(float other, int column) const {
    return other > x || (other == x && column < index && column >= 0);
  }
};

// A thread's elements of a stage that come before the target.
template <class Row, class Stages>
__device__ inline unsigned before_target(const Row& row, const Stages& stages, int c,
                                         const Target& target) {
  unsigned count = 0;
#pragma unroll 1
  for (int i = stages.thread(); i < stages.packs(c); i += stages.step()) {
    float x[Row::kLanes];
    Row::values(stages.pack(c, i), x);
    const auto column = static_cast<int>(row.column(stages.first(c) + i));
#pragma unroll
    for (int k = 0; k < Row::kLanes; ++k) count += target.follows(x[k], column + k) ? 1 : 0;
  }
  return count;
}

// A row's selected keys, in the block that has them all.
struct Selected {
  Tally total;
  Key* keys = nullptr;  // largest first
  int count = 0;        // K, or as many as there are above −inf
  bool mine = false;    // whether it is this block
};

// Packs of a stage that have an element above the limit, by their places there.
struct Found {
  int* packs;       // as many as a stage has
  int (&count)[2];  // of one stage and of the next
};

// One block's packs [begin, end) of a row. Columns are below 2^31.
template <class Row>
class Part {
 public:
  using Tile = typename Stages<Row>::Tile;
  static constexpr int P = Stages<Row>::P;

  // The first part has the row's edges.
  __device__ Part(const Row& row, int size, int index) : row_(row), has_edges_(index == 0) {
    begin_ = min(size * index, row.packs());
    end_ = min(begin_ + size, row.packs());
  }

  __device__ const Row& row() const { return row_; }
  __device__ int begin() const { return begin_; }
  __device__ int end() const { return end_; }

  // The keys of the largest elements. meet(tally, largest), by every thread with what it has seen,
  // raises the limit one last time. By a whole block, after a barrier.
  template <class Meet>
  __device__ void gather(BestKeys& best, const Stages<Row>& stages, const Found& found,
                         const Target& target, bool ranks, Meet meet) const {
    // Edges are fewer than threads: one has one or none, on its way with the first stage.
    const bool has_edges = has_edges_ && row_.edges() > 0;
    const bool own = has_edges && thread() < row_.edges();
    const float edge = own ? row_.edge(thread()) : minus_infinity<float>();
    Tally mine = MergeTallies::identity();
    float largest = minus_infinity<float>();
    const auto take = [&](const Folded& folded) {
      mine.state = merge(mine.state, folded.state);
      largest = fmaxf(largest, folded.largest);
    };
    int meets = 0;  // the stage after which the block meets next: it has seen twice as many then
#pragma unroll 1
    for (int c = 0;; ++c) {
      Tile tile;
      stages.take(c, tile);
      const Folded folded = row_.fold(tile);
      take(folded);
      if (ranks) mine.before += before_target(row_, stages, c, target);
      const bool last = stages.is_last(c);
      if (last) {
        if (has_edges) take(row_.fold_one(edge));
        if (ranks && own && target.follows(edge, edge_column())) ++mine.before;
        meet(mine, largest);
      } else if (c == meets) {
        meets = 2 * c + 1;
        if (end_ - stages.first(c) > stages.first(c) - begin_) best.bound(largest);
      }
      const float v = value_of(best.limit());
      if (folded.largest > v) find(tile, found.packs, found.count[c % 2], v);
      if (thread() == 0) found.count[(c + 1) % 2] = 0;  // all have left the stage before
      if (__syncthreads_or(folded.largest > v)) {
        const int n = found.count[c % 2];
        if (n > 2 * best.k() + step() / 4) best.bound(largest);
        offer_found(best, stages, c, found.packs, n);
      }
      if (last) break;
      stages.leave(c);
    }
    if (!has_edges) return;
    offer(best, own && edge >= value_of(best.limit()) ? 1 : 0, edge_column(),
          [edge](int) { return edge; });
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int step() { return static_cast<int>(blockDim.x); }

  __device__ int edge_column() const { return static_cast<int>(row_.edge_column(thread())); }

  // Notes a thread's packs that have an element above the limit. Elements equal to its value came
  // later than all that it was made of.
  __device__ static void find(const Tile& tile, int* found, int& count, float v) {
    unsigned bits = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) bits |= Row::largest_or_nan(tile[p]) > v ? 1U << p : 0U;
    int at = atomicAdd(&count, __popc(bits));
#pragma unroll 1
    for (; bits != 0; bits &= bits - 1) {
      found[at++] = thread() + (__ffs(static_cast<int>(bits)) - 1) * step();
    }
  }

  // The found packs' elements, a thread per pack; all is free afterwards.
  __device__ void offer_found(BestKeys& best, const Stages<Row>& stages, int c, const int* found,
                              int n) const {
#pragma unroll 1
    for (int i = thread(); i - thread() < n; i += step()) {
      unsigned passing = 0;
      int at = 0;
      if (i < n) {
        at = found[i];
        float x[Row::kLanes];
        Row::values(stages.pack(c, at), x);
        const float v = value_of(best.limit());
#pragma unroll
        for (int k = 0; k < Row::kLanes; ++k) passing |= x[k] >= v ? 1U << k : 0U;
      }
      offer(best, passing, static_cast<int>(row_.column(stages.first(c) + at)),
            [&](int k) { return Row::value(stages.pack(c, at), k); });
    }
  }

  // Elements above the limit, a bit each, until every thread has had room for what it offers. A cut
  // on the way may raise the limit to one of them: keys are compared, not values.
  template <class Value>
  __device__ static void offer(BestKeys& best, unsigned rest, int column, Value value) {
    for (;;) {
      bool full = false;
#pragma unroll 1
      while (rest != 0 && !full) {
        const int k = __ffs(static_cast<int>(rest)) - 1;
        const Key key = key_of(value(k), static_cast<unsigned>(column + k));
        full = key > best.limit() && !best.offer(key);
        if (!full) rest &= rest - 1;
      }
      if (!__syncthreads_or(full)) return;
      best.cut(best.k() + best.k() / 4);
    }
  }

  Row row_;
  bool has_edges_;
  int begin_, end_;
};

// Between what is stored and z. Not 0: −inf stands for what is not there, and stays −inf.
ONEPASS_HD inline float factor_of(double scale, double temperature) {
  return std::fmax(static_cast<float>(scale / temperature), std::numeric_limits<float>::min());
}

// What the launch says of the rows, beside their own arguments.
template <class Place>
struct CommonOf {
  SpaceOf<Place> space;
  std::int64_t first_row;
  double scale;                          // of dense rows; any others find it in their arguments
  EachRowAt<double, Place> temperature;  // of all
  float factor;                          // scale over the one temperature
  int size;                              // packs per part
  int stages;

  __device__ float factor_for(double t) const {
    return t == temperature.value ? factor : factor_of(scale, t);
  }
};
using Common = CommonOf<Operand>;

}  // namespace onepass::ops::select
