// One row of logits on the device: z from x, pack by pack, every option on the way.
#pragma once

#include "ops/row/device_row.cuh"

namespace onepass {

// An element of a tensor whose dtype only the call knows.
template <class T>
__device__ inline T element_at(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f16: return static_cast<T>(widen(static_cast<const F16*>(data)[index]));
    case DType::bf16: return static_cast<T>(widen(static_cast<const BF16*>(data)[index]));
    case DType::f64: return static_cast<T>(static_cast<const double*>(data)[index]);
    case DType::u8: return static_cast<T>(static_cast<const std::uint8_t*>(data)[index]);
    default: return static_cast<T>(static_cast<const float*>(data)[index]);
  }
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
};

// z from one element of x: scale, softcap, temperature, masks.
template <class T>
class Transform {
 public:
  __device__ Transform(const RowArgs& args, std::int64_t row)
      : additive_(args.space, args.logits.additive, row),
        boolean_(args.space, args.logits.boolean, row) {
    const Logits& l = args.logits;
    const double scale = row_scale(args.space, l, row);
    const double temperature = row_temperature(args.space, l, row);
    capped_ = l.softcap != 0;
    inner_ = static_cast<T>(capped_ ? scale / l.softcap : scale / temperature);
    outer_ = static_cast<T>(l.softcap / temperature);
  }

  __device__ T operator()(T x, std::int64_t c) const {
    T z = x * inner_;
    if (capped_) z = tanh(z) * outer_;
    if (additive_.data != nullptr) {
      z += element_at<T>(additive_.data, additive_.dtype, c * additive_.stride);
    }
    if (boolean_.data != nullptr &&
        static_cast<const std::uint8_t*>(boolean_.data)[c * boolean_.stride] == 0) {
      z = minus_infinity<T>();
    }
    return z;
  }

 private:
  MaskRow additive_, boolean_;
  bool capped_;
  T inner_, outer_;
};

template <class T>
struct NoTransform {
  __device__ NoTransform(const RowArgs&, std::int64_t) {}
  __device__ T operator()(T x, std::int64_t) const { return x; }
};

template <class In, bool General>
class LogitsRow {
 public:
  using T = Compute<In>;
  static constexpr int kLanes = Pack<In>::kLanes;

  __device__ LogitsRow(const RowArgs& args, Reach reach, std::int64_t row)
      : x_(row_data(args.space, args.logits.x, row), General ? args.logits.x.col_stride : 1, reach,
           args.space.cols,
           General ? live_columns(args.space, args.logits, row) : Columns{0, args.space.cols}),
        transform_(args, row) {}

  __device__ int packs() const { return x_.packs(); }

  // The column of pack i's first element; negative where the row begins inside the pack.
  __device__ std::int64_t column(int i) const { return x_.column(i); }

  // Pack i as it is stored, if it comes before `end`.
  __device__ Pack<In> fetch(int i, int end) const { return i < end ? x_.load(i) : Pack<In>{}; }

  // Its logits; −inf where no element takes part.
  __device__ void convert(const Pack<In>& pack, int i, int end, T (&z)[kLanes]) const {
    widen({pack}, z);
    if constexpr (General) {
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        const bool live = i < end && x_.takes_part(i, k);
        z[k] = live ? transform_(z[k], x_.column(i) + k) : minus_infinity<T>();
      }
    } else if (i >= end || x_.partial(i)) {
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        if (i >= end || !x_.takes_part(i, k)) z[k] = minus_infinity<T>();
      }
    }
  }

 private:
  PackReader<In> x_;
  std::conditional_t<General, Transform<T>, NoTransform<T>> transform_;
};

}  // namespace onepass
