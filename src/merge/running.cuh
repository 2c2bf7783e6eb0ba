// Sums of many terms in one thread that do not lose digits as the terms grow in number: pairwise
// for the terms at hand, compensated from tile to tile.
#pragma once

#include "core/long_state.hpp"
#include "merge/operators.hpp"

namespace onepass {

// Pairwise: a term passes log2 N additions instead of N, which means fewer roundings and a shorter
// chain of dependent instructions.
template <class T, int N>
__device__ inline T pairwise_sum(const T (&terms)[N]) {
  if constexpr (N == 1) {
    return terms[0];
  } else {
    static_assert(N % 2 == 0);
    T pairs[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) pairs[i] = terms[i] + terms[i + N / 2];
    return pairwise_sum(pairs);
  }
}

// The value that a thread folds tile after tile into. Over many tiles rounding errors would add up:
// a sum of equal terms rounds the same way at every step, and a sum of 1 absorbs any number of
// terms below half its ulp without a trace. So sums keep what each addition rounds off and add it
// at the end.
template <class Join>
class Running {
 public:
  using Value = typename Join::Value;
  __device__ explicit Running(const Value& first) : value_(first) {}
  __device__ void take(const Value& tile) { value_ = Join()(value_, tile); }
  __device__ Value all() const { return value_; }

 private:
  Value value_;
};

template <class T>
class Running<Add<T>> {
 public:
  __device__ explicit Running(T first) : sum_(first) {}

  __device__ void take(T term) {
    const T sum = sum_ + term;
    const T kept = sum - term;  // the part of sum_; Knuth's two-sum, exact in either order
    lost_ += (sum_ - kept) + (term - (sum - kept));
    sum_ = sum;
  }

  __device__ void scale(T by) {
    sum_ *= by;
    lost_ *= by;
  }

  // An infinite sum leaves NaN in lost_.
  __device__ T all() const { return isfinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  T sum_;
  T lost_ = 0;
};

// m_ follows the maximum only when that exceeds it by more than LongState::kSlack; see there.
template <class T>
class Running<Merge<T>> {
 public:
  __device__ explicit Running(State<T> first) : m_(first.m), sum_(first.d) {}

  __device__ void take(State<T> tile) {
    if (tile.m > m_ + T(LongState::kSlack) || tile.m != tile.m) {  // a NaN is the largest
      sum_.scale(rescale(tile.m, m_));
      m_ = tile.m;
      sum_.take(tile.d);
    } else {
      sum_.take(tile.d * rescale(m_, tile.m));
    }
  }

  __device__ State<T> all() const { return {m_, sum_.all()}; }

 private:
  T m_;
  Running<Add<T>> sum_;
};

}  // namespace onepass
