// One row of logits on the device: z from x, pack by pack, every option on the way.
#pragma once

#include "merge/thread.cuh"
#include "rows/gpu/device_row.cuh"

namespace onepass {

// Calls body(data as its own type) where only the call knows the dtype.
template <class Body>
__device__ inline void with_dtype(const void* data, DType dtype, Body body) {
  switch (dtype) {
    case DType::f16: return body(static_cast<const F16*>(data));
    case DType::bf16: return body(static_cast<const BF16*>(data));
    case DType::f64: return body(static_cast<const double*>(data));
    case DType::u8: return body(static_cast<const std::uint8_t*>(data));
    default: return body(static_cast<const float*>(data));
  }
}

__device__ inline float widen(std::uint8_t x) { return x; }

// An element of a tensor whose dtype only the call knows.
template <class T>
__device__ inline T element_at(const void* data, DType dtype, std::int64_t index) {
  T element;
  with_dtype(data, dtype,
             [&](const auto* typed) { element = static_cast<T>(widen(typed[index])); });
  return element;
}

// Neighbours of a tensor, `stride` elements apart: those whose bit is set, 0 for the others.
template <class T, int N>
__device__ __noinline__ Values<T, N> elements_at(const void* data, DType dtype, std::int64_t first,
                                                 std::int64_t stride, unsigned which) {
  Values<T, N> out;
  with_dtype(data, dtype, [&](const auto* typed) {
    typed += first * stride;
#pragma unroll
    for (int k = 0; k < N; ++k, typed += stride) {
      out.z[k] = which >> k & 1 ? static_cast<T>(widen(*typed)) : T(0);
    }
  });
  return out;
}

// One row of a mask: an operand without its strides over rows, which a thread would have to index.
struct MaskRow {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;

  __device__ MaskRow(const RowSpace& space, const Operand& operand, std::int64_t row) {
    if (!operand) return;
    data = row_data(space, operand, row);
    dtype = operand.dtype;
    stride = operand.col_stride;
  }

  // Of a boolean mask's row: a bit for each of N columns from c on that it hides, of
  // those that take part.
  template <int N>
  __device__ unsigned hidden(std::int64_t c, unsigned live) const {
    if (data == nullptr) return 0;
    const auto* shown = static_cast<const std::uint8_t*>(data) + c * stride;
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < N; ++k, shown += stride) {
      if ((live >> k & 1) != 0 && *shown == 0) bits |= 1U << k;
    }
    return bits;
  }
};

// z from one element of x: scale, softcap, temperature, masks.
template <class T>
class Transform {
 public:
  __device__ Transform(const RowArgs& args, std::int64_t row, double temperature)
      : additive_(args.space, args.logits.additive, row),
        boolean_(args.space, args.logits.boolean, row) {
    const Logits& l = args.logits;
    const double scale = row_scale(args.space, l, row);
    capped_ = l.softcap != 0;
    inner_ = static_cast<T>(capped_ ? scale / l.softcap : scale / temperature);
    outer_ = static_cast<T>(l.softcap / temperature);
  }

  // z of neighbours from column c on, whose bits say which take part; −inf of the others.
  template <int N>
  __device__ __noinline__ static Values<T, N> apply(Transform own, Values<T, N> x, std::int64_t c,
                                                    unsigned live) {
#pragma unroll
    for (T& z : x.z) z *= own.inner_;
    if (own.capped_) {
#pragma unroll
      for (T& z : x.z) z = tanh(z) * own.outer_;
    }
    if (const MaskRow& mask = own.additive_; mask.data != nullptr) {
      const Values<T, N> added = elements_at<T, N>(mask.data, mask.dtype, c, mask.stride, live);
#pragma unroll
      for (int k = 0; k < N; ++k) x.z[k] += added.z[k];
    }
    live &= ~own.boolean_.template hidden<N>(c, live);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if ((live >> k & 1) == 0) x.z[k] = minus_infinity<T>();
    }
    return x;
  }

  __device__ T operator()(T x, std::int64_t c) const { return apply<1>(*this, {{x}}, c, 1).z[0]; }

  // The same where a call can be spared.
  template <int N>
  __device__ Values<T, N> of(Values<T, N> x, std::int64_t c, unsigned live) const {
    if (capped_ || additive_.data != nullptr || boolean_.data != nullptr) {
      return apply(*this, x, c, live);
    }
#pragma unroll
    for (T& z : x.z) z *= inner_;
    if (live == kAllOf<N>) return x;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if ((live >> k & 1) == 0) x.z[k] = minus_infinity<T>();
    }
    return x;
  }

 private:
  MaskRow additive_, boolean_;
  bool capped_;
  T inner_, outer_;
};

// dz/dx of one element: scale and temperature, and the slope of the softcap at x.
template <class T>
class Slope {
 public:
  __device__ Slope(const RowArgs& args, std::int64_t row)
      : x_(args.space, args.logits.x, row), boolean_(args.space, args.logits.boolean, row) {
    const Logits& l = args.logits;
    const double scale = row_scale(args.space, l, row);
    factor_ = static_cast<T>(scale / row_temperature(args.space, l, row));
    capped_ = l.softcap != 0;
    inner_ = capped_ ? static_cast<T>(scale / l.softcap) : T(0);
  }

  // The gradient of z becomes that of x, for neighbours from column c on, whose bits say which take
  // part; 0 of the others.
  template <int N>
  __device__ __noinline__ static Values<T, N> weigh(Slope own, Values<T, N> dz, std::int64_t c,
                                                    unsigned live) {
    live &= ~own.boolean_.template hidden<N>(c, live);
    if (own.capped_) {  // a scale of 0, too: 0 · inf is NaN
      const Values<T, N> x = elements_at<T, N>(own.x_.data, own.x_.dtype, c, own.x_.stride, live);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T t = tanh(x.z[k] * own.inner_);
        dz.z[k] *= T(1) - t * t;
      }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) dz.z[k] = live >> k & 1 ? dz.z[k] * own.factor_ : T(0);
    return dz;
  }

  // The same for those whose logits are above −inf.
  template <int N>
  __device__ void weigh_possible(const T (&z)[N], std::int64_t c, T (&g)[N]) const {
    Values<T, N> dz;
    unsigned possible = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      dz.z[k] = g[k];
      if (z[k] != minus_infinity<T>()) possible |= 1U << k;
    }
    dz = weigh(*this, dz, c, possible);
#pragma unroll
    for (int k = 0; k < N; ++k) g[k] = dz.z[k];
  }

  __device__ const MaskRow& boolean() const { return boolean_; }

 private:
  MaskRow x_, boolean_;
  bool capped_;
  T factor_, inner_;
};

// A row without options: what is kept of a pack is the pack.
template <class In>
class DenseLogits {
 public:
  using Args = FlatArgs;
  using T = float;
  using Stored = Pack<In>;
  using Held = Pack<In>;
  using Edge = In;
  static constexpr int kLanes = Pack<In>::kLanes;

  __device__ DenseLogits(const FlatArgs& args, std::int64_t row)
      : packs_(row_of(args, args.in, row), args.cols) {}

  __device__ int packs() const { return packs_.packs(); }
  __device__ int edges() const { return packs_.edges(); }
  __device__ std::int64_t column(int i) const { return packs_.column(i); }
  __device__ std::int64_t edge_column(int e) const { return packs_.edge_column(e); }
  __device__ T at(std::int64_t c) const { return widen(packs_.at(c)); }

  __device__ const Stored* address(int i) const { return packs_.data() + i; }
  __device__ Stored fetch(int i) const { return *address(i); }
  __device__ static Held hold(const Stored& stored, int, int) { return stored; }
  __device__ void ask(int i, Stored* slot) const { copy_async(packs_.data() + i, slot); }
  __device__ static Stored nothing() {  // −inf
    Stored pack;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      set_element(pack.word, k, narrow<In>(minus_infinity<T>()));
    }
    return pack;
  }
  __device__ Edge fetch_edge(int e) const {
    return e < edges() ? packs_.at(packs_.edge_column(e)) : narrow<In>(minus_infinity<T>());
  }

  template <int P>
  __device__ static T largest(const Held (&held)[P]) {
    return largest_or_nan(held);
  }
  __device__ static void values(const Held& held, T (&z)[kLanes]) { widen({held}, z); }
  __device__ static T value_in(const Held& held, int k) {
    return widen(reinterpret_cast<const In*>(&held)[k]);
  }
  __device__ static T value(Edge edge) { return widen(edge); }

  template <class Out>
  __device__ DenseStore<In, Out> store(void* row, const FlatOperand&) const {
    return {row, packs_};
  }

 private:
  DensePacks<In> packs_;
};

// A row with any options, of any strides and dtype, computed in Float: the logits are kept, each
// computed once.
template <class Float>
class AnyLogits {
 public:
  using Args = RowArgs;
  using T = Float;
  using Stored = AnyPack<T>;
  static constexpr int kLanes = AnyPack<T>::kLanes;
  using Held = Values<T, kLanes>;
  using Edge = T;

  __device__ AnyLogits(const RowArgs& args, std::int64_t row)
      : AnyLogits(args, row, row_temperature(args.space, args.logits, row)) {}
  __device__ AnyLogits(const RowArgs& args, std::int64_t row, double temperature)
      : x_(args.space, args.logits.x, row, live_columns(args.space, args.logits, row)),
        cols_(args.space.cols),
        transform_(args, row, temperature) {}

  __device__ int packs() const { return x_.packs(); }
  __device__ std::int64_t column(int i) const { return x_.column(i); }

  // All elements are in packs.
  __device__ static constexpr int edges() { return 0; }
  __device__ static std::int64_t edge_column(int) { return 0; }
  __device__ static Edge fetch_edge(int) { return minus_infinity<T>(); }
  __device__ static T value(Edge edge) { return edge; }

  // −inf where it does not take part.
  __device__ T at(std::int64_t c) const {
    return x_.live(c) ? transform_(x_.at(c), c) : minus_infinity<T>();
  }

  __device__ Stored fetch(int i) const { return x_.load(i); }
  __device__ static Stored nothing() { return {}; }  // hold() knows

  __device__ Held hold(const Stored& stored, int i, int end) const {
    Held held;
    x_.values(stored, held.z);
    return transform_.of(held, x_.column(i), i < end ? x_.taking_part(i) : 0);
  }

  template <int P>
  __device__ static T largest(const Held (&held)[P]) {
    T m = largest_or_nan(held[0].z);
#pragma unroll
    for (int p = 1; p < P; ++p) m = larger_or_nan(largest_or_nan(held[p].z), m);
    return m;
  }
  __device__ static T value_in(const Held& held, int k) { return held.z[k]; }
  __device__ static void values(const Held& held, T (&z)[kLanes]) {
#pragma unroll
    for (int k = 0; k < kLanes; ++k) z[k] = held.z[k];
  }

  template <class Out>
  __device__ AnyStore<T> store(void* row, const Operand& to) const {
    return {row, to.dtype, to.col_stride, cols_, x_.column(0)};
  }

 private:
  PackReader<T> x_;
  std::int64_t cols_;
  Transform<T> transform_;
};

// In and Out are the stored types. Where only the call knows them the row is any: Out is void, and
// In what it is computed in.
template <class In, class Out>
using LogitsFor = std::conditional_t<std::is_void_v<Out>, AnyLogits<In>, DenseLogits<In>>;

}  // namespace onepass
