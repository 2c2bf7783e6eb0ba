// One row of a tensor on the device, 16 bytes at a time, whatever it lies on.
//
// A row is cut into packs at the multiples of 16 bytes of its input. A pack that sticks out of the
// row is loaded whole all the same, as long as the tensor goes on there, and what is not the row's is
// masked out: no lane takes another path than its neighbours.
#pragma once

#include "core/pack.cuh"
#include "ops/row/args.hpp"

namespace onepass {

template <class Stored>
using Compute = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

// First and last byte of a tensor: what may be loaded.
struct Reach {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

inline Reach reach_of(const RowSpace& space, const Operand& operand) {
  std::int64_t last = (space.cols - 1) * operand.col_stride;
  for (int i = 0; i < space.rank; ++i) last += (space.extent[i] - 1) * operand.row_strides[i];
  const auto* data = static_cast<const std::byte*>(operand.data);
  return {data, data + (last + 1) * static_cast<std::int64_t>(size_of(operand.dtype))};
}

template <class Stored>
class PackReader {
 public:
  static constexpr int kLanes = Pack<Stored>::kLanes;

  // With a stride, elements lie apart, and a pack is only a number of them.
  __device__ PackReader(const void* row, std::int64_t stride, Reach reach, std::int64_t cols,
                        Columns live)
      : stride_(stride),
        skew_(stride == 1 ? past_boundary<Stored>(row) : 0),
        first_(static_cast<const Stored*>(row) - skew_),
        packs_(static_cast<int>((skew_ + cols + kLanes - 1) / kLanes)),
        begin_(skew_ + live.begin),
        end_(skew_ + live.end) {
    const auto* start = reinterpret_cast<const std::byte*>(first_);
    lowest_ = start >= reach.begin ? 0 : 1;
    highest_ = stride_ != 1                                     ? 0
               : start + packs_ * std::int64_t{16} <= reach.end ? packs_
                                                                : packs_ - 1;
  }

  __device__ int packs() const { return packs_; }

  // The column of pack i's first element; negative where the row begins inside the pack.
  __device__ std::int64_t column(int i) const { return std::int64_t{i} * kLanes - skew_; }

  // Pack i; what is in it of no element is anything.
  __device__ Pack<Stored> load(int i) const {
    Pack<Stored> pack{};
    const std::int64_t first = std::int64_t{i} * kLanes;
    if (first + kLanes <= begin_ || first >= end_) return pack;  // nothing of it takes part
    if (i >= lowest_ && i < highest_) {
      return *reinterpret_cast<const Pack<Stored>*>(first_ + first);
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      if (first + k >= begin_ && first + k < end_)
        set_element(pack.word, k, first_[(first + k) * stride_]);
    }
    return pack;
  }

  // Whether elements of pack i do not take part.
  __device__ bool partial(int i) const {
    const std::int64_t first = std::int64_t{i} * kLanes;
    return first < begin_ || first + kLanes > end_;
  }
  __device__ bool takes_part(int i, int k) const {
    const std::int64_t element = std::int64_t{i} * kLanes + k;
    return element >= begin_ && element < end_;
  }

 private:
  std::int64_t stride_;
  int skew_;
  const Stored* first_;
  int packs_;
  std::int64_t begin_, end_;
  int lowest_, highest_;  // packs that can be loaded whole
};

// Values of one pack of the input to their columns of a row of the output. `Out` is the stored type,
// or void where only the call knows it.
template <class Out>
class RowStore {
 public:
  __device__ RowStore(void* row, DType dtype, std::int64_t stride, std::int64_t cols)
      : row_(row), dtype_(dtype), stride_(stride), cols_(cols) {}

  // values[k] to column c + k, as far as there are columns.
  template <class T, int N>
  __device__ void put(std::int64_t c, const T (&values)[N]) const {
    if constexpr (std::is_void_v<Out>) {
      switch (dtype_) {
        case DType::f16: return put_as<F16>(c, values);
        case DType::bf16: return put_as<BF16>(c, values);
        case DType::f64: return put_as<double>(c, values);
        default: return put_as<float>(c, values);
      }
    } else {
      put_as<Out>(c, values);
    }
  }

 private:
  template <class Stored, class T, int N>
  __device__ void put_as(std::int64_t c, const T (&values)[N]) const {
    constexpr int kBytes = N * static_cast<int>(sizeof(Stored));
    constexpr int kAccess = kBytes < 16 ? kBytes : 16;
    Stored* to = static_cast<Stored*>(row_) + c * stride_;
    if (c >= 0 && c + N <= cols_ && stride_ == 1 &&
        reinterpret_cast<std::uintptr_t>(to) % kAccess == 0) {
      struct alignas(kAccess) Chunk {
        unsigned word[kAccess / 4];
      };
#pragma unroll
      for (int b = 0; b < kBytes / kAccess; ++b) {
        Chunk chunk;
        constexpr int kEach = kAccess / static_cast<int>(sizeof(Stored));
        narrow_words<Stored>(values + b * kEach, chunk.word);
        reinterpret_cast<Chunk*>(to)[b] = chunk;
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (c + k >= 0 && c + k < cols_) to[k * stride_] = narrow<Stored>(values[k]);
    }
  }

  void* row_;
  DType dtype_;
  std::int64_t stride_;
  std::int64_t cols_;
};

}  // namespace onepass
