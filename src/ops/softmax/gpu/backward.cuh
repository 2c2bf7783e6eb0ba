// The gradients of softmax and log_softmax of one row: the fold is a sum. y and dy
// are read once each.
#pragma once

#include "merge/operators.hpp"
#include "merge/running.cuh"
#include "rows/gpu/logits.cuh"

namespace onepass::ops::softmax {

// y and dy of a row without options, side by side.
template <class In>
class DensePair {
 public:
  using Args = FlatArgs;
  using T = float;
  static constexpr int kLanes = Pack<In>::kLanes;
  struct Stored {
    Pack<In> y, dy;
  };
  using Held = Stored;

  struct Edge {
    In y, dy;
  };

  __device__ DensePair(const FlatArgs& args, std::int64_t row)
      : y_(row_of(args, args.in, row), args.cols),
        dy_(row_of(args, args.dy, row), args.cols),
        paired_(y_.head() == dy_.head()) {}

  __device__ int packs() const { return y_.packs(); }
  __device__ int edges() const { return y_.edges(); }
  __device__ std::int64_t edge_column(int e) const { return y_.edge_column(e); }

  __device__ Stored fetch(int i) const {
    return {y_.data()[i], paired_ ? dy_.data()[i] : unpaired(i)};
  }
  __device__ static Held hold(const Stored& stored, int, int) { return stored; }
  __device__ void ask(int i, Stored* slot) const {
    copy_async(y_.data() + i, &slot->y);
    if (paired_) {
      copy_async(dy_.data() + i, &slot->dy);
    } else {
      slot->dy = unpaired(i);
    }
  }
  __device__ static Stored nothing() { return {}; }
  __device__ Edge fetch_edge(int e) const {
    if (e >= edges()) return {};
    return {y_.at(edge_column(e)), dy_.at(edge_column(e))};
  }

  __device__ static void values(const Held& held, T (&y)[kLanes], T (&dy)[kLanes]) {
    widen({held.y}, y);
    widen({held.dy}, dy);
  }
  __device__ static T y_of(Edge edge) { return widen(edge.y); }
  __device__ static T dy_of(Edge edge) { return widen(edge.dy); }

  __device__ static void weigh(int, Values<T, kLanes>&) {}

  template <class Out>
  __device__ DenseStore<In, Out> store(void* row, const FlatOperand&) const {
    return {row, y_};
  }

 private:
  // The columns of y's pack i, of a dy that lies differently.
  __device__ Pack<In> unpaired(int i) const {
    Pack<In> pack{};
#pragma unroll
    for (int k = 0; k < kLanes; ++k) set_element(pack.word, k, dy_.at(y_.column(i) + k));
    return pack;
  }

  DensePacks<In> y_, dy_;
  bool paired_;  // a pack of y and one of dy hold the same columns
};

// With any options. Where a logit is hidden it has no say in the gradient: its terms are 0,
// whatever lies there.
template <class Float>
class AnyPair {
 public:
  using Args = RowArgs;
  using T = Float;
  static constexpr int kLanes = AnyPack<T>::kLanes;
  using Stored = AnyPack<T>;
  struct Held {
    Values<T, kLanes> y, dy;
  };

  __device__ AnyPair(const RowArgs& args, std::int64_t row)
      : y_(args.space, args.y, row, live_columns(args.space, args.logits, row)),
        dy_(args.space, args.dy, row),
        cols_(args.space.cols),
        slope_(args, row) {}

  __device__ int packs() const { return y_.packs(); }
  __device__ Stored fetch(int i) const { return y_.load(i); }
  __device__ static Stored nothing() { return {}; }  // hold() knows

  // All elements are in packs.
  struct Edge {};
  __device__ static constexpr int edges() { return 0; }
  __device__ static std::int64_t edge_column(int) { return 0; }
  __device__ static Edge fetch_edge(int) { return {}; }
  __device__ static T y_of(Edge) { return 0; }
  __device__ static T dy_of(Edge) { return 0; }

  __device__ Held hold(const Stored& stored, int i, int end) const {
    Values<T, kLanes> y;
    y_.values(stored, y.z);
    return pair(y, dy_, slope_.boolean(), y_.column(i), i < end ? y_.taking_part(i) : 0);
  }

  __device__ static void values(const Held& held, T (&y)[kLanes], T (&dy)[kLanes]) {
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      y[k] = held.y.z[k];
      dy[k] = held.dy.z[k];
    }
  }

  // The gradient of z becomes that of x.
  __device__ void weigh(int i, Values<T, kLanes>& dx) const {
    dx = Slope<T>::weigh(slope_, dx, y_.column(i), y_.taking_part(i));
  }

  template <class Out>
  __device__ AnyStore<T> store(void* row, const Operand& to) const {
    return {row, to.dtype, to.col_stride, cols_, y_.column(0)};
  }

 private:
  // y and dy of a pack, 0 where they do not take part. Not inlined, as Values says.
  __device__ __noinline__ static Held pair(Values<T, kLanes> y, MaskRow dy, MaskRow boolean,
                                           std::int64_t c, unsigned live) {
    live &= ~boolean.hidden<kLanes>(c, live);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) y.z[k] = live >> k & 1 ? y.z[k] : T(0);
    return {y, elements_at<T, kLanes>(dy.data, dy.dtype, c, dy.stride, live)};
  }

  PackReader<T> y_;
  MaskRow dy_;
  std::int64_t cols_;
  Slope<T> slope_;
};

template <class In, class Out>
class BackwardRow {
 public:
  using Pair = std::conditional_t<std::is_void_v<Out>, AnyPair<In>, DensePair<In>>;
  using Args = typename Pair::Args;
  using T = typename Pair::T;
  using Stored = typename Pair::Stored;
  using Held = typename Pair::Held;
  using Edge = typename Pair::Edge;
  using Store = StoreFor<In, Out>;
  using Join = Add<T>;
  using Partial = T;
  static constexpr bool kFolds = false;

  __device__ BackwardRow(const Args& args, std::int64_t row)
      : args_(args), row_(row), pair_(args, row) {}

  __device__ int packs() const { return pair_.packs(); }
  __device__ Stored fetch(int i) const { return pair_.fetch(i); }
  __device__ void ask(int i, Stored* slot) const { pair_.ask(i, slot); }
  __device__ static Stored nothing() { return Pair::nothing(); }
  __device__ int edges() const { return pair_.edges(); }
  __device__ Edge fetch_edge(int e) const { return pair_.fetch_edge(e); }
  __device__ Partial fold_edge(Edge edge) const {
    return term(Pair::y_of(edge), Pair::dy_of(edge));
  }
  __device__ Held hold(const Stored& stored, int i, int end) const {
    return pair_.hold(stored, i, end);
  }

  template <int P>
  __device__ Partial fold(const Held (&held)[P], int live) const {
    T sum = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p >= live) break;
      T y[kLanes];
      T dy[kLanes];
      Pair::values(held[p], y, dy);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) y[k] = term(y[k], dy[k]);
      sum += pairwise_sum(y);
    }
    return sum;
  }

  __device__ static constexpr bool writes() { return true; }

  struct Scale {
    T total;
    Store store;
  };
  __device__ Scale scale(Partial total) const { return {total, store()}; }

  __device__ void finish(int i, const Held& held, const Scale& scale) const {
    T y[kLanes];
    Values<T, kLanes> dx;
    Pair::values(held, y, dx.z);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) dx.z[k] = gradient(y[k], dx.z[k], scale.total);
    pair_.weigh(i, dx);
    scale.store.put(i, dx.z);
  }

  __device__ void finish_edge(int e, Edge edge, const Scale& scale) const {
    scale.store.put_at(pair_.edge_column(e),
                       gradient(Pair::y_of(edge), Pair::dy_of(edge), scale.total));
  }

  __device__ void conclude(Partial) const {}

 private:
  static constexpr int kLanes = Pair::kLanes;

  __device__ bool logs() const { return args_.op == Op::log_softmax_backward; }
  __device__ T term(T y, T dy) const { return logs() ? dy : y * dy; }
  __device__ T gradient(T y, T dy, T total) const {
    return logs() ? dy - exponential(y) * total : (dy - total) * y;
  }
  __device__ Store store() const {
    return pair_.template store<Out>(row_of(args_, args_.out, row_), args_.out);
  }

  const Args& args_;
  std::int64_t row_;
  Pair pair_;
};

struct BackwardRows {
  static constexpr bool kWidens = false;
  template <class In, class Out>
  using Row = BackwardRow<In, Out>;
};

}  // namespace onepass::ops::softmax
