// softmax, log_softmax and logsumexp of one row. The three differ in what they write, so the call
// says which it is; stored types are compiled in. Out = void is the row with any options.
#pragma once

#include "merge/operators.hpp"
#include "merge/running.cuh"
#include "rows/gpu/logits.cuh"

namespace onepass::ops::softmax {

template <class In, class Out>
class ForwardRow {
 public:
  using Logits = LogitsFor<In, Out>;
  using Args = typename Logits::Args;
  using T = typename Logits::T;
  using Stored = typename Logits::Stored;
  using Held = typename Logits::Held;
  using Edge = typename Logits::Edge;
  using Join = Merge<T>;
  using Partial = State<T>;
  static constexpr bool kFolds =
      std::is_same_v<In, Out>;  // a row of which nothing is written has no wider output

  __device__ ForwardRow(const Args& args, std::int64_t row)
      : args_(args), row_(row), logits_(args, row) {}

  __device__ int packs() const { return logits_.packs(); }
  __device__ Stored fetch(int i) const { return logits_.fetch(i); }
  __device__ void ask(int i, Stored* slot) const { logits_.ask(i, slot); }
  __device__ static Stored nothing() { return Logits::nothing(); }
  __device__ int edges() const { return logits_.edges(); }
  __device__ Edge fetch_edge(int e) const { return logits_.fetch_edge(e); }
  __device__ static Partial fold_edge(Edge edge) { return leaf(Logits::value(edge)); }
  __device__ Held hold(const Stored& stored, int i, int end) const {
    return logits_.hold(stored, i, end);
  }

  template <int P>
  __device__ Partial fold(const Held (&held)[P], int live) const {
    const T m = Logits::largest(held);
    const T s = shift(m);
    T d = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p >= live) break;
      T z[kLanes];
      Logits::values(held[p], z);
#pragma unroll
      for (T& value : z) value = exponential(value - s);
      d += pairwise_sum(z);
    }
    return {m, d};
  }

  // What every element of the row needs of its total.
  struct Scale {
    T shift;
    T factor;  // softmax: 1 / d, for 16 bits −log2 d; log_softmax: −log d
    StoreFor<In, Out> store;
  };

  __device__ bool writes() const { return args_.op != Op::logsumexp; }

  __device__ Scale scale(Partial total) const {
    return {shift(total.m), factor(total.d),
            logits_.template store<Out>(row_of(args_, args_.out, row_), args_.out)};
  }

  __device__ void finish(int i, const Held& held, const Scale& scale) const {
    T z[kLanes];
    Logits::values(held, z);
    if (logs()) {
#pragma unroll
      for (T& value : z) value = logarithm(value, scale);
    } else {
#pragma unroll
      for (T& value : z) value = weight(value, scale);
    }
    scale.store.put(i, z);
  }

  __device__ void finish_edge(int e, Edge edge, const Scale& scale) const {
    const T z = Logits::value(edge);
    scale.store.put_at(logits_.edge_column(e), logs() ? logarithm(z, scale) : weight(z, scale));
  }

  // By one thread of the row.
  __device__ void conclude(Partial total) const {
    const auto& to = writes() ? args_.lse : args_.out;
    if (to) write_like(row_of(args_, to, row_), to.dtype, 0, logsumexp(total));
  }

 private:
  static constexpr int kLanes = Logits::kLanes;
  static constexpr bool kTwos = std::is_same_v<Out, F16> || std::is_same_v<Out, BF16>;

  __device__ bool logs() const { return args_.op == Op::log_softmax; }

  __device__ T factor(T d) const {
    if (d == T(0)) return kTwos || logs() ? T(0) : T(1);
    if (logs()) return -log(d);
    if constexpr (kTwos) return -__log2f(d);
    return T(1) / d;
  }

  __device__ static T logarithm(T z, const Scale& scale) {
    return (z - scale.shift) + scale.factor;
  }
  __device__ static T weight(T z, const Scale& scale) {
    if constexpr (kTwos) return exponential(z - scale.shift, scale.factor);
    return exponential(z - scale.shift) * scale.factor;
  }

  const Args& args_;
  std::int64_t row_;
  Logits logits_;
};

struct ForwardRows {
  static constexpr bool kWidens = true;  // f16 and bf16 to f32 has kernels of its own
  template <class In, class Out>
  using Row = ForwardRow<In, Out>;
};

}  // namespace onepass::ops::softmax
