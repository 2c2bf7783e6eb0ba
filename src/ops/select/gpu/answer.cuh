// What topk writes of a row, by the block that has its keys.
#pragma once

#include "ops/select/gpu/select.cuh"

namespace onepass::ops::select {

template <class Place>
struct TopkOutputsAt {
  std::int64_t k;
  TopkValues values;
  bool sorted;
  Place out, indices, lse, target, target_logprob, target_rank;
};
using TopkOutputs = TopkOutputsAt<Operand>;

template <class Place = Operand>
TopkOutputsAt<Place> outputs_of(const RowArgs& args) {
  const Select& select = *args.select;
  return {.k = select.k,
          .values = select.values,
          .sorted = select.sorted,
          .out = place_of<Place>(args.out),
          .indices = place_of<Place>(select.indices),
          .lse = place_of<Place>(args.lse),
          .target = place_of<Place>(args.target),
          .target_logprob = place_of<Place>(select.target_logprob),
          .target_rank = place_of<Place>(select.target_rank)};
}

inline EachRow<double> temperature_of(const RowArgs& args) {
  return {.value = args.logits.temperature, .rows = args.logits.temperature_rows};
}

// A row's target; one that is no token of the row is none.
template <class Place, class Row>
__device__ inline Target target_of(const CommonOf<Place>& common, const TopkOutputsAt<Place>& out,
                                   const Row& row, std::int64_t at) {
  if (!out.target) return {};
  const auto token =
      read_one<std::int64_t>(address_of(common.space, out.target, at), out.target.dtype);
  if (token < 0 || token >= common.space.cols) return {};
  return {static_cast<int>(token), row.at(token)};
}

// Of a row that cannot be answered.
__device__ inline State<float> broken_state() {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  return {nan, nan};
}

__device__ inline float log_probability(const State<float>& row, float z) {
  if (row.d == 0 || z == minus_infinity<float>()) {
    return row.d == row.d ? minus_infinity<float>() : row.d;
  }
  return (z - row.m) - logf(row.d);
}

// A row of an output, if it is wanted: floats of some type, or integers.
class RowOut {
 public:
  template <class Space, class Place>
  __device__ RowOut(const Space& space, const Place& to, std::int64_t row)
      : data_(to ? address_of(space, to, row) : nullptr),
        dtype_(to.dtype),
        stride_(to.col_stride) {}

  template <class Value>
  __device__ void put(std::int64_t column, Value value) const {
    if (data_ == nullptr) return;
    with_type_for<Value>(dtype_, [&]<class Stored>(Type<Stored>) {
      static_cast<Stored*>(data_)[column * stride_] = narrow<Stored>(value);
    });
  }

 private:
  void* data_;
  DType dtype_;
  std::int64_t stride_;
};

template <class Row, class Place>
class Answer {
 public:
  __device__ Answer(const CommonOf<Place>& common, const TopkOutputsAt<Place>& out, std::int64_t at,
                    const Row& row, const State<float>& state)
      : common_(common), out_(out), at_(at), row_(row), state_(state) {}

  // Whether the lse is NaN, without a logarithm: it is +inf where an element is.
  __device__ bool broken() const {
    return state_.d != state_.d && state_.m != -minus_infinity<float>();
  }

  __device__ void write_target(const Target& target, unsigned before) const {
    if (threadIdx.x != 0) return;
    const bool none = broken() || target.index < 0;
    if (out_.lse) of(out_.lse).put(0, logsumexp(state_));
    if (!out_.target) return;
    of(out_.target_logprob)
        .put(0, none ? std::numeric_limits<float>::quiet_NaN()
                     : log_probability(state_, row_.z(target.x)));
    of(out_.target_rank).put(0, none ? -1LL : static_cast<long long>(before));
  }

  // `keys`, largest first, `count` of them.
  __device__ void write_keys(const Key* keys, int count,
                             BlockFold<Add<float>>::Scratch& sums) const {
    write(keys, count, sums, out_.sorted);
  }

  // All K, in the order that they have.
  __device__ void write_in_place(const Key* keys, int count,
                                 BlockFold<Add<float>>::Scratch& sums) const {
    write(keys, count, sums, true);
  }

 private:
  __device__ void write(const Key* keys, int count, BlockFold<Add<float>>::Scratch& sums,
                        bool in_place) const {
    const RowOut values = of(out_.out);
    const RowOut indices = of(out_.indices);
    const float sum = broken() ? 0 : sum_of_weights(keys, count, BlockFold<Add<float>>(sums));
#pragma unroll 1
    for (std::int64_t i = threadIdx.x; i < out_.k; i += blockDim.x) {
      // Where fewer than K are above −inf, the others come by index.
      std::int64_t to = i;
      long long index = -1;
      float z = minus_infinity<float>();
      if (!broken()) {
        if (i < count) {
          index = index_of(keys[i]);
          z = row_.z(value_of(keys[i]));
          if (!in_place) to = place_by_index(keys, count, index);
        } else {
          index = filler(keys, count, i - count);
          if (!in_place) to = index;
        }
      }
      indices.put(to, index);
      values.put(to, broken() ? std::numeric_limits<float>::quiet_NaN() : value(z, sum));
    }
  }

  __device__ RowOut of(const Place& to) const { return {common_.space, to, at_}; }

  __device__ float sum_of_weights(const Key* keys, int count,
                                  const BlockFold<Add<float>>& block) const {
    float mine = 0;
    if (out_.values != TopkValues::renormalized) return mine;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      mine += weight(state_, row_.z(value_of(keys[i])));
    }
    return block.all(mine);
  }

  __device__ float value(float z, float sum) const {
    switch (out_.values) {
      case TopkValues::logit: return z;
      case TopkValues::log_probability: return log_probability(state_, z);
      case TopkValues::renormalized: return sum == 0 ? 0 : weight(state_, z) / sum;
      default: return weight(state_, z);
    }
  }

  // Of the K that are written, those with a lower index.
  __device__ std::int64_t place_by_index(const Key* keys, int count, long long index) const {
    const std::int64_t before = taken_below(keys, count, index);
    return before + std::min<std::int64_t>(out_.k - count, index - before);  // and the fillers
  }

  // The n-th index that is not taken.
  __device__ static long long filler(const Key* keys, int count, std::int64_t n) {
    long long index = n;
    for (long long more = taken_below(keys, count, index + 1); index != n + more;) {
      index = n + more;
      more = taken_below(keys, count, index + 1);
    }
    return index;
  }

  __device__ static std::int64_t taken_below(const Key* keys, int count, long long index) {
    std::int64_t below = 0;
#pragma unroll 1
    for (int j = 0; j < count; ++j) below += index_of(keys[j]) < index ? 1 : 0;
    return below;
  }

  const CommonOf<Place>& common_;
  const TopkOutputsAt<Place>& out_;
  std::int64_t at_;
  const Row& row_;
  State<float> state_;
};

// What a block has selected of a row. A temperature of the row's own that cannot be leaves it
// without an answer.
template <class Row, class Place>
__device__ inline void write_selected(const CommonOf<Place>& common,
                                      const TopkOutputsAt<Place>& out, std::int64_t at,
                                      const Row& row, double temperature, const Target& target,
                                      const Selected& selected,
                                      BlockFold<Add<float>>::Scratch& sums) {
  const bool possible = temperature > 0 && isfinite(temperature);
  const Answer answer(common, out, at, row, possible ? selected.total.state : broken_state());
  answer.write_target(target, selected.total.before);
  answer.write_keys(selected.keys, selected.count, sums);
}

}  // namespace onepass::ops::select
