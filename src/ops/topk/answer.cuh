// What topk writes of a row, by the block that has its keys.
#pragma once

#include "ops/topk/choose.cuh"

namespace onepass::ops::topk {

struct TopkOutputs {
  std::int64_t k;
  TopkValues values;
  bool sorted;
  Operand out, indices, lse, target, target_logprob, target_rank;
};

__device__ inline float log_probability(const State<float>& row, float z) {
  if (row.d == 0 || z == minus_infinity<float>()) return minus_infinity<float>();
  return (z - row.m) - logf(row.d);
}

template <class Value>
__device__ inline void put(const RowSpace& space, const Operand& to, std::int64_t row,
                           std::int64_t column, Value value) {
  if (to) write(address_of(space, to, row), to.dtype, column * to.col_stride, value);
}

template <class Row>
class Answer {
 public:
  __device__ Answer(const Common& common, const TopkOutputs& out, std::int64_t at, const Row& row,
                    const State<float>& state)
      : common_(common), out_(out), at_(at), row_(row), state_(state), lse_(logsumexp(state)) {}

  __device__ bool broken() const { return lse_ != lse_; }

  __device__ void write_target(const Target& target, unsigned before) const {
    if (threadIdx.x != 0) return;
    const bool none = broken() || target.index < 0;
    put_one(out_.lse, 0, lse_);
    put_one(out_.target_logprob, 0,
            none ? std::numeric_limits<float>::quiet_NaN()
                 : log_probability(state_, row_.z(target.x)));
    put_one(out_.target_rank, 0, none ? -1LL : static_cast<long long>(before));
  }

  // `keys`, largest first, `count` of them; `spare` is memory for as many.
  __device__ void write_keys(Key* keys, int count, BlockFold<Add<float>>::Scratch& sums) const {
    const float sum = broken() ? 0 : sum_of_weights(keys, count, BlockFold<Add<float>>(sums));
    for (std::int64_t i = threadIdx.x; i < out_.k; i += blockDim.x) {
      if (broken()) {
        put_one(out_.out, i, lse_);
        put_one(out_.indices, i, -1LL);
      } else if (i < count) {
        const Key key = keys[i];
        const std::int64_t to = out_.sorted ? i : place_by_index(keys, count, key);
        put_one(out_.indices, to, static_cast<long long>(index_of(key)));
        put_one(out_.out, to, value(row_.z(value_of(key)), sum));
      }
    }
    if (!broken()) fill_up(keys, count, sum);
  }

 private:
  template <class Value>
  __device__ void put_one(const Operand& to, std::int64_t column, Value value) const {
    put(common_.space, to, at_, column, value);
  }

  __device__ float sum_of_weights(const Key* keys, int count,
                                  const BlockFold<Add<float>>& block) const {
    float mine = 0;
    if (out_.values != TopkValues::renormalized) return mine;
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

  // Where fewer than K are above −inf, the others come by index. Of the K that are written, those below an
  // index come before it.
  __device__ std::int64_t place_by_index(const Key* keys, int count, Key key) const {
    std::int64_t before = 0;
    const unsigned index = index_of(key);
    for (int j = 0; j < count; ++j) before += index_of(keys[j]) < index ? 1 : 0;
    if (count == out_.k) return before;
    // Of the fillers: the lowest indices that are not taken.
    const std::int64_t fillers = out_.k - count;
    return before + min(fillers, static_cast<std::int64_t>(index) - before);
  }

  __device__ void fill_up(const Key* keys, int count, float sum) const {
    const std::int64_t fillers = out_.k - count;
    for (std::int64_t i = threadIdx.x; i < out_.k; i += blockDim.x) {
      if (fillers == 0) return;
      bool taken = false;
      std::int64_t below = 0;  // taken ones
      for (int j = 0; j < count; ++j) {
        taken = taken || index_of(keys[j]) == i;
        below += index_of(keys[j]) < i ? 1 : 0;
      }
      const std::int64_t nth = i - below;
      if (taken || nth >= fillers) continue;
      const std::int64_t to = out_.sorted ? count + nth : i;
      put_one(out_.indices, to, static_cast<long long>(i));
      put_one(out_.out, to, value(minus_infinity<float>(), sum));
    }
  }

  const Common& common_;
  const TopkOutputs& out_;
  std::int64_t at_;
  const Row& row_;
  State<float> state_;
  float lse_;
};

}  // namespace onepass::ops::topk
