// Rows a tile at a time: where every option of a row op is applied, once for all ops. Per-target.
//
// A reader hands out a tile in the computing type T. Data that already is T, dense and without
// options, is handed out in place; everything else (other dtypes, strides, scale, softcap, masks)
// is staged in a buffer that stays in L1. Kernels see no difference: an option is a functor on
// load.

#if defined(ONEPASS_OPS_ROW_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ROW_TILE_INL
#undef ONEPASS_OPS_ROW_TILE_INL
#else
#define ONEPASS_OPS_ROW_TILE_INL
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"
#include "core/state.hpp"
#include "merge/lane-inl.hpp"
#include "rows/args.hpp"
#include "rows/cpu/elements.hpp"
#include "rows/cpu/layout.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Buffers {
  HWY_ALIGN T x[kTile];
  HWY_ALIGN T other[kTile];
  HWY_ALIGN T out[kTile];
};

// out[i] = f(in[i]).
template <class D, class Stored, class F, class T = hn::TFromD<D>>
ONEPASS_FORCED void Map(D d, const Stored* in, size_t n, T* out, F f) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(LoadAs(d, in + i)), d, out + i);
  if (i < n) StoreTail(d, f(LoadTail(d, in + i, n - i, T(0))), out + i, n - i);
}

// out[i] = f(a[i], b[i]).
template <class D, class F, class T = hn::TFromD<D>>
ONEPASS_FORCED void Map2(D d, const T* a, const T* b, size_t n, T* out, F f) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i < n) {
    StoreTail(d, f(LoadTail(d, a + i, n - i, T(0)), LoadTail(d, b + i, n - i, T(0))), out + i,
              n - i);
  }
}

// One row of an operand.
template <class T>
class RowReader {
 public:
  RowReader(const RowSpace& space, const Operand& operand, int64_t row)
      : data_(operand ? row_data(space, operand, row) : nullptr),
        dtype_(operand.dtype),
        stride_(operand.col_stride) {}

  bool dense() const { return stride_ == 1; }
  bool dense_bf16() const { return dense() && dtype_ == DType::bf16; }

  // Whether with_tile hands out memory in place, in any amount.
  bool unstaged() const {
    return dense() && (dtype_ == kOwn || (dtype_ == DType::bf16 && kVectorConvert<T, BF16>) ||
                       (dtype_ == DType::f16 && kVectorConvert<T, F16>));
  }

  template <class Stored>
  const Stored* at(int64_t c) const {
    return static_cast<const Stored*>(data_) + c * stride_;
  }

  // Calls body with a pointer to the tile as it is stored, if a vector load can convert that;
  // otherwise to the tile staged in `buffer`.
  template <class Body>
  ONEPASS_FORCED auto with_tile(int64_t c, size_t n, T* buffer, Body body) const {
    if (dense()) {
      if (dtype_ == kOwn) return body(at<T>(c));
      if constexpr (kVectorConvert<T, BF16>) {
        if (dtype_ == DType::bf16) return body(at<BF16>(c));
      }
      if constexpr (kVectorConvert<T, F16>) {
        if (dtype_ == DType::f16) return body(at<F16>(c));
      }
    }
    const int64_t first = c * stride_ * static_cast<int64_t>(size_of(dtype_));
    load_elements(static_cast<const std::byte*>(data_) + first, dtype_, stride_, n, buffer);
    return body(static_cast<const T*>(buffer));
  }

  const T* tile(int64_t c, size_t n, T* buffer) const {
    const hn::ScalableTag<T> d;
    return with_tile(c, n, buffer, [d, n, buffer](auto* p) ONEPASS_INLINE -> const T* {
      if constexpr (std::is_same_v<decltype(p), const T*>) {
        return p;
      } else {
        Map(d, p, n, buffer, [](hn::Vec<decltype(d)> v) ONEPASS_INLINE { return v; });
        return buffer;
      }
    });
  }

 private:
  static constexpr DType kOwn = sizeof(T) == 8 ? DType::f64 : DType::f32;

  const void* data_;
  DType dtype_;
  int64_t stride_;
};

// One row of logits: z from x.
template <class T>
class LogitsReader {
 public:
  LogitsReader(const RowSpace& space, const Logits& logits, int64_t row)
      : x_(space, logits.x, row),
        additive_(space, logits.additive, row),
        boolean_(space, logits.boolean, row),
        live_{0, space.cols} {
    if (!logits.whole_rows()) live_ = live_columns(space, logits, row);
    if (!logits.plain()) take_options(space, logits, row);
  }

  Columns live() const { return live_; }

  // Whether tiles are handed out as bf16.
  bool dense_bf16() const { return plain_ && x_.dense_bf16(); }
  bool unstaged() const { return plain_ && x_.unstaged(); }

  template <class Body>
  ONEPASS_FORCED auto with_tile(int64_t c, size_t n, Buffers<T>& buffers, Body body) const {
    return plain_ ? x_.with_tile(c, n, buffers.x, body) : body(staged(c, n, buffers));
  }

  const T* tile(int64_t c, size_t n, Buffers<T>& buffers) const {
    return plain_ ? x_.tile(c, n, buffers.x) : staged(c, n, buffers);
  }

  T at(int64_t c, Buffers<T>& buffers) const { return *tile(c, 1, buffers); }

  // Where a boolean mask hides an element, values[i] becomes `hidden`.
  void hide(int64_t c, size_t n, T* values, T hidden) const {
    if (!has_boolean_) return;
    for (size_t i = 0; i < n; ++i) {
      const uint8_t keep = *boolean_.template at<uint8_t>(c + static_cast<int64_t>(i));
      values[i] = keep != 0 ? values[i] : hidden;
    }
  }

  // gradient[i] *= dz/dx: scale and temperature, and the slope of the softcap at x.
  void chain(int64_t c, size_t n, T* gradient, Buffers<T>& buffers) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const V factor = hn::Set(d, scale_ * inverse_temperature_);
    if (cap_ == T(0)) {
      if (scale_ * inverse_temperature_ == T(1)) return;
      Map(d, gradient, n, gradient, [factor](V g) ONEPASS_INLINE { return hn::Mul(g, factor); });
      return;
    }
    const V inner = hn::Set(d, scale_ / cap_);
    Map2(d, x_.tile(c, n, buffers.x), gradient, n, gradient, [=](V x, V g) ONEPASS_INLINE {
      const V t = hn::Tanh(d, hn::Mul(x, inner));
      return hn::Mul(hn::Mul(g, factor), hn::NegMulAdd(t, t, hn::Set(d, T(1))));
    });
  }

 private:
  HWY_NOINLINE void take_options(const RowSpace& space, const Logits& logits, int64_t row) {
    has_additive_ = static_cast<bool>(logits.additive);
    has_boolean_ = static_cast<bool>(logits.boolean);
    const double scale = row_scale(space, logits, row);
    const double temperature = row_temperature(space, logits, row);
    cap_ = static_cast<T>(logits.softcap);
    if (cap_ == T(0)) {  // no softcap between the two factors
      scale_ = static_cast<T>(scale / temperature);
    } else {
      scale_ = static_cast<T>(scale);
      inverse_temperature_ = static_cast<T>(1 / temperature);
    }
    plain_ = scale_ == T(1) && cap_ == T(0) && !has_additive_ && !has_boolean_;
  }

  const T* staged(int64_t c, size_t n, Buffers<T>& buffers) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    T* z = buffers.x;
    if (cap_ == T(0)) {
      const V scale = hn::Set(d, scale_);
      x_.with_tile(c, n, z, [=](auto* x) ONEPASS_INLINE {
        Map(d, x, n, z, [scale](V v) ONEPASS_INLINE { return hn::Mul(v, scale); });
      });
    } else {
      const V inner = hn::Set(d, scale_ / cap_);
      const V outer = hn::Set(d, cap_ * inverse_temperature_);
      Map(d, x_.tile(c, n, z), n, z,
          [=](V v) ONEPASS_INLINE { return hn::Mul(hn::Tanh(d, hn::Mul(v, inner)), outer); });
    }
    if (has_additive_) {
      Map2(d, static_cast<const T*>(z), additive_.tile(c, n, buffers.other), n, z,
           [](V a, V b) ONEPASS_INLINE { return hn::Add(a, b); });
    }
    hide(c, n, z, minus_infinity<T>());
    return z;
  }

  RowReader<T> x_, additive_, boolean_;
  Columns live_;
  bool has_additive_ = false;
  bool has_boolean_ = false;
  bool plain_ = true;
  T cap_ = T(0);
  T scale_ = T(1);
  T inverse_temperature_ = T(1);
};

// One row of an output.
template <class T>
class RowWriter {
 public:
  RowWriter(const RowSpace& space, const Operand& operand, int64_t row, bool streaming)
      : data_(operand ? row_data(space, operand, row) : nullptr),
        dtype_(operand.dtype),
        stride_(operand.col_stride),
        streaming_(streaming) {}

  bool dense(DType dtype) const { return stride_ == 1 && dtype_ == dtype; }

  // Prefetches the cache lines of n columns from c on, if that helps later stores.
  ONEPASS_FORCED void fetch(int64_t c, size_t n) const {
    if (streaming_ || stride_ != 1) return;
    const size_t size = size_of(dtype_);
    Fetch<true>(data_, static_cast<size_t>(c) * size, n * size);
  }

  // out[c + i] = values[i] · factor. Paired: the values are in pairs, and the output is dense bf16.
  void store(int64_t c, size_t n, const T* values, T factor, bool paired = false) const {
    const auto dense = [=, this](auto* p) ONEPASS_INLINE { store_dense(values, n, factor, p + c); };
    if (with_vectors(paired, dense)) return;
    store_elements(values, n, factor, at(c), dtype_, stride_);
  }

  // Calls body with column 0 if vectors can be streamed to the row; returns false otherwise.
  template <class Body>
  ONEPASS_FORCED bool with_stream(bool paired, Body body) const {
    return streaming_ && with_vectors(paired, body);
  }

  // The distance of the row from a multiple of kGrain elements in memory, where tiles of streaming
  // stores begin.
  int64_t skew() const {
    if (!streaming_ || stride_ != 1) return 0;
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data_) / size_of(dtype_)) % kGrain;
  }

  void fill(Columns columns, T value) const {
    const auto n = static_cast<size_t>(columns.end - columns.begin);
    fill_elements(value, n, at(columns.begin), dtype_, stride_);
  }

 private:
  static constexpr DType kOwn = sizeof(T) == 8 ? DType::f64 : DType::f32;

  void* at(int64_t c) const {
    return static_cast<std::byte*>(data_) + c * stride_ * static_cast<int64_t>(size_of(dtype_));
  }

  // Calls body with column 0 in the type it is stored in, if vectors can be stored so; returns
  // false otherwise.
  template <class Body>
  ONEPASS_FORCED bool with_vectors(bool paired, Body body) const {
    if (stride_ != 1) return false;
    if (dtype_ == kOwn) {
      body(static_cast<T*>(data_));
      return true;
    }
    if constexpr (kVectorConvert<T, BF16>) {
      if (dtype_ == DType::bf16) {
        if constexpr (kPairs<T>) {
          if (paired) {
            body(static_cast<PairedBF16*>(data_));
            return true;
          }
        }
        body(static_cast<BF16*>(data_));
        return true;
      }
    }
    if constexpr (kVectorConvert<T, F16>) {
      if (dtype_ == DType::f16) {
        body(static_cast<F16*>(data_));
        return true;
      }
    }
    return false;
  }

  template <class Stored>
  ONEPASS_FORCED void store_dense(const T* values, size_t n, T factor, Stored* p) const {
    const hn::ScalableTag<T> d;
    constexpr size_t kVectors = kGroup<T, Stored>;
    const hn::Vec<hn::ScalableTag<T>> scaled = hn::Set(d, factor);
    const size_t lanes = hn::Lanes(d);
    const size_t step = kVectors * lanes;
    const auto some_at = [=](size_t i, size_t end) ONEPASS_INLINE {
      for (; i < end; i += lanes) {
        const size_t count = HWY_MIN(lanes, end - i);
        StoreTail(d, hn::Mul(LoadTail(d, values + i, count, T(0)), scaled), p + i, count);
      }
    };
    size_t i = 0;
    size_t past = reinterpret_cast<uintptr_t>(p) / sizeof(Stored) % step;
    if (streaming_) {
      // Only at a row's beginning: other tiles and pieces begin aligned, see for_each_tile.
      if (past != 0 && !std::is_same_v<Stored, PairedBF16>) {
        i = HWY_MIN(n, step - past);
        some_at(0, i);
        past = 0;
      }
      if (past == 0) {
        for (; i + step <= n; i += step) StoreScaled<true, kVectors>(d, values + i, scaled, p + i);
      }
    }
    for (; i + step <= n; i += step) StoreScaled<false, kVectors>(d, values + i, scaled, p + i);
    some_at(i, n);
  }

  void* data_;
  DType dtype_;
  int64_t stride_;
  bool streaming_;
};

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
