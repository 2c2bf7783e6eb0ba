// One row of a tensor on the device, 16 bytes at a time, whatever it lies on.
//
// A row is cut into packs at the multiples of 16 bytes of its input. A dense row has only whole
// ones, and what is left at its two ends goes element by element. A row of any kind has a partial
// one at each end: it is loaded whole as long as the tensor goes on there, and what is not the
// row's is masked out.
#pragma once

#include "core/cuda/pack.cuh"
#include "rows/gpu/flat.hpp"

namespace onepass {

template <class Stored>
using Compute = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

// The values of a pack, passed in registers to functions that are not inlined: kernels for any row
// make packs in many places, and one copy of every option serves them all. Inlined, they were a
// third of the library.
template <class T, int N>
struct alignas(16) Values {
  T z[N];
};

// First and last byte of a tensor: what may be loaded.
struct Reach {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

ONEPASS_HD inline Reach reach_of(const RowSpace& space, const Operand& operand) {
  if (!operand) return {};
  std::int64_t last = (space.cols - 1) * operand.col_stride;
  for (int i = 0; i < space.rank; ++i) last += (space.extent[i] - 1) * operand.row_strides[i];
  const auto* data = static_cast<const std::byte*>(operand.data);
  return {data, data + (last + 1) * static_cast<std::int64_t>(size_of(operand.dtype))};
}

// A row whose elements are neighbours and all take part: the whole packs in it, and the elements
// before the first and after the last of them, its edges. Nothing beside the row is touched.
template <class Stored>
class DensePacks {
 public:
  static constexpr int kLanes = Pack<Stored>::kLanes;

  __device__ DensePacks(const void* row, std::int64_t cols)
      : row_(static_cast<const Stored*>(row)),
        head_(
            static_cast<int>(min(cols, std::int64_t{-past_boundary<Stored>(row) & (kLanes - 1)}))),
        packs_(static_cast<int>(static_cast<std::uint64_t>(cols - head_) / kLanes)),
        edges_(static_cast<int>(cols - std::int64_t{packs_} * kLanes)),
        data_(reinterpret_cast<const Pack<Stored>*>(row_ + head_)) {}

  __device__ int packs() const { return packs_; }
  __device__ int head() const { return head_; }
  __device__ std::int64_t column(int i) const { return head_ + std::int64_t{i} * kLanes; }

  // Pack 0; the others follow.
  __device__ const Pack<Stored>* data() const { return data_; }

  __device__ int edges() const { return edges_; }
  __device__ std::int64_t edge_column(int e) const {
    return e < head_ ? e : std::int64_t{packs_} * kLanes + e;
  }

  __device__ Stored at(std::int64_t c) const { return row_[c]; }

 private:
  const Stored* row_;
  int head_;  // elements before the first pack
  int packs_;
  int edges_;  // elements in no pack
  const Pack<Stored>* data_;
};

// The bits of all elements of a pack.
template <int Lanes>
inline constexpr unsigned kAllOf = (1U << Lanes) - 1;

// Elements of any row as they lie in memory, as many as go into a T each.
template <class T>
struct alignas(16) AnyPack {
  static constexpr int kLanes = any_lanes(sizeof(T) == 8 ? DType::f64 : DType::f32);
  static constexpr int kWords = kLanes * static_cast<int>(sizeof(T) / 4);
  unsigned word[kWords];
};

// The packs of any row that is computed in T: elements may lie apart, only some of them take part,
// and only the call knows their dtype.
template <class T>
class PackReader {
 public:
  static constexpr int kLanes = AnyPack<T>::kLanes;

  // With a stride, elements lie apart, and a pack is only a number of them.
  __device__ PackReader(const RowSpace& space, const Operand& operand, std::int64_t row,
                        Columns live)
      : stride_(operand.col_stride),
        dtype_(operand.dtype),
        bytes_(static_cast<int>(size_of(operand.dtype))) {
    const auto* data = static_cast<const std::byte*>(row_data(space, operand, row));
    const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(data) % kPackBytes);
    skew_ = stride_ == 1 ? past / bytes_ : 0;
    first_ = data - skew_ * bytes_;
    packs_ = static_cast<int>((skew_ + space.cols + kLanes - 1) / kLanes);
    begin_ = skew_ + live.begin;
    end_ = skew_ + live.end;
    live_begin_ = static_cast<int>((begin_ + kLanes - 1) / kLanes);
    live_end_ = static_cast<int>(end_ / kLanes);
    const Reach reach = reach_of(space, operand);
    lowest_ = first_ >= reach.begin ? 0 : 1;
    const std::byte* end = first_ + std::int64_t{packs_} * kLanes * bytes_;
    highest_ = stride_ != 1 ? 0 : end <= reach.end ? packs_ : packs_ - 1;
  }

  __device__ int packs() const { return packs_; }

  // The column of pack i's first element; negative where the row begins inside the pack.
  __device__ std::int64_t column(int i) const { return std::int64_t{i} * kLanes - skew_; }

  // Pack i; what is in it of no element is anything.
  __device__ AnyPack<T> load(int i) const {
    const unsigned live = taking_part(i);
    if (live == 0) return {};
    if (i < lowest_ || i >= highest_) {
      return load_each(address(std::int64_t{i} * kLanes), stride_, dtype_, live);
    }
    AnyPack<T> pack{};
    using Access = Pack<T>;
    const auto* accesses =
        reinterpret_cast<const Access*>(first_ + std::int64_t{i} * (kLanes * bytes_));
    auto* to = reinterpret_cast<Access*>(&pack);
    to[0] = accesses[0];
    if constexpr (sizeof(AnyPack<T>) > sizeof(Access)) {
      if (dtype_ == DType::f32) to[1] = accesses[1];
    }
    return pack;
  }

  // The elements of a pack.
  __device__ void values(const AnyPack<T>& pack, T (&z)[kLanes]) const {
    if constexpr (std::is_same_v<T, double>) {
      widen_as<double>(pack, z);
    } else {
      switch (dtype_) {
        case DType::f16: return widen_as<F16>(pack, z);
        case DType::bf16: return widen_as<BF16>(pack, z);
        default: return widen_as<float>(pack, z);
      }
    }
  }

  __device__ bool live(std::int64_t c) const { return c + skew_ >= begin_ && c + skew_ < end_; }
  __device__ T at(std::int64_t c) const {
    const std::byte* from = address(c + skew_);
    if (bytes_ != 2) return *reinterpret_cast<const T*>(from);
    const auto bits = *reinterpret_cast<const std::uint16_t*>(from);
    return dtype_ == DType::bf16 ? widen(BF16{bits}) : widen(F16{bits});
  }
  // A bit for each element of pack i that takes part.
  __device__ unsigned taking_part(int i) const {
    if (i >= live_begin_ && i < live_end_) return kAllOf<kLanes>;
    const std::int64_t first = std::int64_t{i} * kLanes;
    const auto bits_before = [first](std::int64_t element) {
      return (1U << static_cast<int>(
                  min(max(element - first, std::int64_t{0}), std::int64_t{kLanes}))) -
             1;
    };
    return bits_before(end_) & ~bits_before(begin_);
  }

 private:
  __device__ const std::byte* address(std::int64_t element) const {
    return first_ + element * stride_ * bytes_;
  }

  template <class Stored>
  __device__ static void widen_as(const AnyPack<T>& pack, T (&z)[kLanes]) {
#pragma unroll
    for (int k = 0; k < kLanes; ++k) z[k] = widened<Stored>(pack.word, k);
  }

  // The elements whose bit is set, one by one.
  __device__ __noinline__ static AnyPack<T> load_each(const std::byte* from, std::int64_t stride,
                                                      DType dtype, unsigned live) {
    AnyPack<T> pack{};
    const auto set = [&]<class Stored>(const Stored* typed) {
#pragma unroll
      for (int k = 0; k < kLanes; ++k, typed += stride) {
        if (live >> k & 1) set_element(pack.word, k, *typed);
      }
    };
    if constexpr (std::is_same_v<T, double>) {
      set(reinterpret_cast<const double*>(from));
    } else if (dtype == DType::f32) {
      set(reinterpret_cast<const float*>(from));
    } else {  // F16 or BF16: the bits are the same
      set(reinterpret_cast<const F16*>(from));
    }
    return pack;
  }

  std::int64_t stride_;
  DType dtype_;
  int bytes_;  // of an element
  int skew_;
  const std::byte* first_;
  int packs_;
  std::int64_t begin_, end_;
  int live_begin_, live_end_;  // packs whose elements all take part
  int lowest_, highest_;       // packs that can be loaded whole
};

// Values of a dense row's packs and edges to a dense row of the output.
template <class In, class Out>
class DenseStore {
 public:
  static constexpr int kLanes = Pack<In>::kLanes;

  __device__ DenseStore(void* row, const DensePacks<In>& packs)
      : row_(static_cast<Out*>(row)),
        head_(packs.head()),
        aligned_(reinterpret_cast<std::uintptr_t>(row_ + head_) % 16 == 0) {}

  __device__ void put(int i, const float (&values)[kLanes]) const {
    constexpr int kOut = Pack<Out>::kLanes;
    Out* to = row_ + head_ + std::int64_t{i} * kLanes;
    if (aligned_) {
#pragma unroll
      for (int b = 0; b < kLanes / kOut; ++b) {
        Pack<Out> pack;
        narrow_words<Out>(values + b * kOut, pack.word);
        reinterpret_cast<Pack<Out>*>(to)[b] = pack;
      }
    } else {
#pragma unroll
      for (int k = 0; k < kLanes; ++k) to[k] = narrow<Out>(values[k]);
    }
  }

  __device__ void put_at(std::int64_t c, float value) const { row_[c] = narrow<Out>(value); }

 private:
  Out* row_;
  int head_;
  bool aligned_;  // the input's packs are packs here
};

// The same where only the call knows dtype and strides, for a row that is computed in T.
template <class T>
class AnyStore {
 public:
  static constexpr int kLanes = AnyPack<T>::kLanes;

  // `first` is the column of pack 0's first element.
  __device__ AnyStore(void* row, DType dtype, std::int64_t stride, std::int64_t cols,
                      std::int64_t first)
      : row_(row), dtype_(dtype), stride_(stride), cols_(cols), first_(first) {}

  __device__ static void put_at(std::int64_t, T) {}

  __device__ void put(int i, const T (&values)[kLanes]) const {
    Values<T, kLanes> pack;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) pack.z[k] = values[k];
    put_pack(*this, i, pack);
  }

 private:
  __device__ __noinline__ static void put_pack(AnyStore own, int i, Values<T, kLanes> pack) {
    switch (own.dtype_) {
      case DType::f16: return own.put_as<F16>(i, pack.z);
      case DType::bf16: return own.put_as<BF16>(i, pack.z);
      case DType::f64: return own.put_as<double>(i, pack.z);
      default: return own.put_as<float>(i, pack.z);
    }
  }

  template <class Out>
  __device__ void put_as(int i, const T (&values)[kLanes]) const {
    constexpr int kBytes = kLanes * static_cast<int>(sizeof(Out));
    constexpr int kAccess = kBytes < 16 ? kBytes : 16;
    constexpr int kEach = kAccess / static_cast<int>(sizeof(Out));
    const std::int64_t c = first_ + std::int64_t{i} * kLanes;
    Out* to = static_cast<Out*>(row_) + c * stride_;
    if (c >= 0 && c + kLanes <= cols_ && stride_ == 1 &&
        reinterpret_cast<std::uintptr_t>(to) % kAccess == 0) {
      struct alignas(kAccess) Chunk {
        unsigned word[kAccess / 4];
      };
#pragma unroll
      for (int b = 0; b < kBytes / kAccess; ++b) {
        Chunk chunk;
        narrow_words<Out>(values + b * kEach, chunk.word);
        reinterpret_cast<Chunk*>(to)[b] = chunk;
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      if (c + k >= 0 && c + k < cols_) to[k * stride_] = narrow<Out>(values[k]);
    }
  }

  void* row_;
  DType dtype_;
  std::int64_t stride_;
  std::int64_t cols_;
  std::int64_t first_;
};

// Out = void: only the call knows it, and In is what the row is computed in.
template <class In, class Out>
using StoreFor = std::conditional_t<std::is_void_v<Out>, AnyStore<In>, DenseStore<In, Out>>;

}  // namespace onepass
