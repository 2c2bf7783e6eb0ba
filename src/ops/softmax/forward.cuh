// softmax, log_softmax and logsumexp of a row that its threads hold in registers: one read, one write.
//
// The three differ in one multiplication and one addition an element, so the call says which it is;
// stored types are compiled in. Out = void is the general row: every option, every output dtype.
#pragma once

#include "core/pack.cuh"
#include "merge/thread.cuh"
#include "ops/row/device_row.cuh"
#include "ops/row/logits.cuh"

namespace onepass::ops::softmax {

template <class In, class Out>
class ForwardRow {
 public:
  using T = Compute<In>;
  static constexpr bool kGeneral = std::is_void_v<Out>;
  static constexpr int kLanes = Pack<In>::kLanes;

  __device__ ForwardRow(const RowArgs& args, Reach reach, std::int64_t row)
      : args_(args), row_(row), logits_(args, reach, row) {}

  __device__ int packs() const { return logits_.packs(); }

  // Packs first, first + step, … before `end`: all on their way before the first is used.
  template <int P>
  __device__ void fetch(int first, int step, int end, Pack<In> (&packs)[P]) const {
#pragma unroll
    for (int p = 0; p < P; ++p) packs[p] = logits_.fetch(first + p * step, end);
  }

  __device__ Pack<In> fetch(int i, int end) const { return logits_.fetch(i, end); }

  template <int P>
  __device__ void convert(const Pack<In> (&packs)[P], int first, int step, int end,
                          T (&z)[P * kLanes]) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      logits_.convert(packs[p], first + p * step, end,
                      reinterpret_cast<T(&)[kLanes]>(z[p * kLanes]));
    }
  }

  template <int P>
  __device__ void load(int first, int step, int end, T (&z)[P * kLanes]) const {
    Pack<In> packs[P];
    fetch(first, step, end, packs);
    convert(packs, first, step, end, z);
  }

  // z becomes what finish() needs of it: exp(z − m) for softmax, z − m for its logarithm, where m is
  // the maximum of this thread's own.
  template <int N>
  __device__ State<T> fold(T (&z)[N]) const {
    const bool keeps_log = args_.op == Op::log_softmax;
    const T m = largest_or_nan(z);
    const T s = shift(m);
    T d = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const T difference = z[i] - s;
      const T e = exponential(difference);
      d += e;
      z[i] = keeps_log ? difference : e;
    }
    return {m, d};
  }

  // `mine` is what fold() gave this thread, `total` the whole row's.
  template <int P>
  __device__ void finish(int first, int step, int end, const T (&z)[P * kLanes], State<T> mine,
                         State<T> total) const {
    if (args_.op == Op::logsumexp) return;
    // out = z · scale + offset
    T scale = factor(total, mine.m);
    T offset = 0;
    if (args_.op == Op::log_softmax) {
      scale = 1;
      offset = total.d == T(0) ? T(0) : (shift(mine.m) - total.m) - log(total.d);
    }
    const RowStore<Out> out(row_data(args_.space, args_.out, row_), args_.out.dtype,
                            kGeneral ? args_.out.col_stride : 1, args_.space.cols);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = first + p * step;
      if (i >= end) continue;
      T values[kLanes];
#pragma unroll
      for (int k = 0; k < kLanes; ++k) values[k] = z[p * kLanes + k] * scale + offset;
      out.put(logits_.column(i), values);
    }
  }

  // By one thread of the row.
  __device__ void conclude(State<T> total) const {
    const Operand& to = args_.op == Op::logsumexp ? args_.out : args_.lse;
    if (to) write(row_data(args_.space, to, row_), to.dtype, 0, logsumexp(total));
  }

 private:
  const RowArgs& args_;
  std::int64_t row_;
  LogitsRow<In, kGeneral> logits_;
};

}  // namespace onepass::ops::softmax
