// Cross-entropy of one row whose classes have weights, or probabilities as targets,
// forward and backward.
#pragma once

#include "merge/operators.hpp"
#include "merge/running.cuh"
#include "merge/warp.cuh"
#include "ops/loss/shares.hpp"
#include "rows/gpu/logits.cuh"
#include "rows/packs.hpp"

namespace onepass::ops::loss {

template <class T>
struct MergeShares {
  using Value = Shares<State<T>>;
  ONEPASS_HD static constexpr Value identity() { return {onepass::identity<T>(), 0, 0, 0, 0, 0}; }
  ONEPASS_HD Value operator()(const Value& a, const Value& b) const { return merge(a, b); }
};

// As states meet: first the maximum, then sums that are all relative to it.
template <class T>
__device__ inline Shares<State<T>> group_fold(const Shares<State<T>>& mine, MergeShares<T>,
                                              int lanes) {
  const State<T> state = onepass::group_fold(mine.state, Merge<T>(), lanes);
  const Shares<State<T>> moved = relative_to(state.m, mine);
  const auto sum = [lanes](double each) { return onepass::group_fold(each, Add<double>(), lanes); };
  return {state,           sum(moved.count), sum(moved.weight), sum(moved.spread), sum(moved.share),
          sum(moved.drawn)};
}

// A thread's packs one after the other: a state that keeps what its additions round off, and sums
// relative to its m.
template <class T>
class RunningShares {
 public:
  using Value = Shares<State<T>>;

  __device__ void take(const Value& tile) {
    const Value before = {{m_, T(0)},   sums_.count, sums_.weight,
                          sums_.spread, sums_.share, sums_.drawn};
    state_.take(tile.state);
    m_ = state_.all().m;
    sums_ = sum_of({m_, T(0)}, relative_to(m_, before), relative_to(m_, tile));
  }
  __device__ Value all() const {
    Value all = sums_;
    all.state = state_.all();
    return all;
  }

 private:
  Running<Merge<T>> state_{identity<T>()};
  T m_ = minus_infinity<T>();
  Value sums_ = MergeShares<T>::identity();
};

// Neighbours of a tensor whose dtype only the call knows: those whose bit is set, 0 for the others.
// All of dense ones come in a few wide loads.
template <class T, int N>
__device__ __noinline__ Values<T, N> neighbours_at(MaskRow row, std::int64_t first,
                                                   unsigned which) {
  Values<T, N> out;
  with_dtype(row.data, row.dtype, [&]<class Stored>(const Stored* typed) {
    constexpr int kBytes = N * static_cast<int>(sizeof(Stored));
    constexpr int kAccess = kBytes < kPackBytes ? kBytes : kPackBytes;
    typed += first * row.stride;
    struct alignas(kAccess) Chunk {
      Stored each[kAccess / sizeof(Stored)];
    };
    if (row.stride == 1 && which == (1U << N) - 1 &&
        reinterpret_cast<std::uintptr_t>(typed) % kAccess == 0) {
      constexpr int kEach = kAccess / static_cast<int>(sizeof(Stored));
#pragma unroll
      for (int b = 0; b < kBytes / kAccess; ++b) {
        const Chunk chunk = reinterpret_cast<const Chunk*>(typed)[b];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          out.z[b * kEach + k] = static_cast<T>(widen(chunk.each[k]));
        }
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < N; ++k, typed += row.stride) {
      out.z[k] = which >> k & 1 ? static_cast<T>(widen(*typed)) : T(0);
    }
  });
  return out;
}

// Like the rows of rows/gpu/drive.cuh, but folds know which packs they have.
template <class Float>
class WeightedRow {
 public:
  using Args = RowArgs;
  using T = Float;
  using Logits = AnyLogits<T>;
  using Stored = typename Logits::Stored;
  using Join = MergeShares<T>;
  using Partial = Shares<State<T>>;
  static constexpr int kLanes = Logits::kLanes;

  // Logits, −inf where they are hidden or past the end, and w · q of targets that
  // are probabilities.
  struct Held {
    Values<T, kLanes> z, share;
  };

  __device__ WeightedRow(const RowArgs& args, std::int64_t row)
      : args_(args),
        row_(row),
        logits_(args, row),
        slope_(args, row),
        probabilities_(args.space, args.has_probabilities ? args.target : Operand{}, row),
        weights_(args.space, args.weight, row) {
    if (args.has_probabilities) return;
    const void* target = row_data(args.space, args.target, row);
    target_ = args.target.dtype == DType::i32 ? *static_cast<const std::int32_t*>(target)
                                              : *static_cast<const std::int64_t*>(target);
    ignored_ = target_ == args.ignore_index;
    if (ignored_) return;
    // A target that is no class, which only the kernel can see, makes the row NaN.
    weight_ = is_class() ? static_cast<T>(weight_of(args.weight, target_))
                         : std::numeric_limits<T>::quiet_NaN();
    // Before anybody writes: dx may lie over x.
    if (gives_loss() && is_class()) hit_ = logits_.at(target_);
  }

  __device__ int packs() const { return logits_.packs(); }
  __device__ Stored fetch(int i) const { return logits_.fetch(i); }
  __device__ static Stored nothing() { return {}; }  // hold() knows
  __device__ Held hold(const Stored& stored, int i, int end) const {
    Held held{logits_.hold(stored, i, end), {}};
    if (args_.has_probabilities && i < end) held.share = shares(i);
    return held;
  }

  // Packs first, first + step, … and none from `end` on.
  template <int P>
  __device__ Partial fold(const Held (&held)[P], int first, int step, int end) const {
    T m = largest_or_nan(held[0].z.z);
#pragma unroll
    for (int p = 1; p < P; ++p) m = larger_or_nan(largest_or_nan(held[p].z.z), m);
    const T s = shift(m);
    const T half = half_shift(m);
    constexpr T kPart = T(0x1p-10);  // the largest logits would add up to inf
    T d = 0, count = 0, weight = 0, spread = 0, share = 0, drawn = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = first + p * step;
      if (i >= end) break;
      const Values<T, kLanes>& z = held[p].z;
      const Values<T, kLanes>& a = held[p].share;
      T e[kLanes];
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        e[k] = exponential(z.z[k] - s);
        share += a.z[k];
        drawn += a.z[k] == T(0) ? T(0) : a.z[k] * ((z.z[k] / T(2) - half) * kPart);
      }
      d += pairwise_sum(e);
      if (!smooths()) continue;
      const Values<T, kLanes> w = weights(i);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        const bool possible = z.z[k] != minus_infinity<T>();
        count += possible ? T(1) : T(0);
        weight += possible ? w.z[k] : T(0);
        spread += possible ? w.z[k] * ((z.z[k] / T(2) - half) * kPart) : T(0);
      }
    }
    const double whole = 1 / static_cast<double>(kPart);
    return {{m, d}, count, weight, whole * spread, share, whole * drawn};
  }

  __device__ bool writes() const { return args_.op == Op::cross_entropy_backward; }

  // dx = (exp(z − m) · factor − own · share − smooth · w) · slope, all three of dloss.
  struct Scale {
    T m, factor, own, smooth;
    T hit;           // what the target has less
    bool zero;       // ignored, or fully masked
    int pack, lane;  // where the target is
    AnyStore<T> store;
  };

  __device__ Scale scale(Partial total) const {
    if (knows_lse()) {
      const T lse = element_at<T>(row_data(args_.space, args_.lse, row_), args_.lse.dtype, 0);
      total.state = lse == minus_infinity<T>() ? identity<T>() : leaf(lse);
    }
    if (!args_.has_probabilities) total.share = static_cast<double>(weight_);
    const Labels of = labels(total, args_.label_smoothing);
    const double z_slope = 2 * args_.z_loss * static_cast<double>(logsumexp(total.state));
    const double by = dloss();
    const std::int64_t target = target_ - logits_.column(0);
    return {
        .m = total.state.m,
        .factor = static_cast<T>((of.sum + z_slope) / static_cast<double>(total.state.d) * by),
        .own = static_cast<T>(of.own * by),
        .smooth = static_cast<T>(of.smooth * by),
        .hit = static_cast<T>(of.own * by) * weight_,
        .zero = ignored_ || total.state.d == T(0),
        .pack = is_class() ? static_cast<int>(target / kLanes) : -1,
        .lane = static_cast<int>(target % kLanes),
        .store = logits_.template store<void>(row_data(args_.space, args_.out, row_), args_.out)};
  }

  __device__ void finish(int i, const Held& held, const Scale& scale) const {
    Values<T, kLanes> g;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      g.z[k] = exponential(held.z.z[k] - scale.m) * scale.factor - scale.own * held.share.z[k];
      if (i == scale.pack && k == scale.lane) g.z[k] -= scale.hit;
    }
    if (scale.smooth != T(0)) {
      const Values<T, kLanes> w = weights(i);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) g.z[k] -= scale.smooth * w.z[k];
    }
    slope_.weigh_possible(held.z.z, logits_.column(i), g.z);
    if (scale.zero) g = {};
    scale.store.put(i, g.z);
  }

  // By one thread.
  __device__ void conclude(Partial total) const {
    if (!gives_loss()) return;
    const Operand& to = writes() ? args_.loss : args_.out;
    const T lse = logsumexp(total.state);
    if (args_.lse) write_like(row_data(args_.space, args_.lse, row_), args_.lse.dtype, 0, lse);
    if (!args_.has_probabilities) total = with_target(total, weight_, hit_);
    const double loss =
        ignored_ ? 0
                 : loss_of(total, args_.label_smoothing, args_.z_loss, static_cast<double>(lse));
    if (args_.row_losses != nullptr) {
      args_.row_losses[row_ - args_.first_row] = loss;
    } else {
      write_like(row_data(args_.space, to, row_), to.dtype, 0, loss);
    }
  }

 private:
  __device__ bool gives_loss() const { return !writes() || args_.loss; }
  __device__ bool knows_lse() const { return args_.lse && !gives_loss(); }
  __device__ bool smooths() const { return args_.label_smoothing > 0; }
  __device__ bool is_class() const { return target_ >= 0 && target_ < args_.space.cols; }

  // A bit for each element of pack i that is in the row, hidden or not.
  __device__ unsigned in_row(int i) const {
    const std::int64_t c = logits_.column(i);
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      if (c + k >= 0 && c + k < args_.space.cols) bits |= 1U << k;
    }
    return bits;
  }

  __device__ Values<T, kLanes> weights(int i) const {
    if (weights_.data != nullptr) {
      return neighbours_at<T, kLanes>(weights_, logits_.column(i), in_row(i));
    }
    Values<T, kLanes> ones;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) ones.z[k] = T(1);
    return ones;
  }

  __device__ Values<T, kLanes> shares(int i) const {
    Values<T, kLanes> q = neighbours_at<T, kLanes>(probabilities_, logits_.column(i), in_row(i));
    if (weights_.data == nullptr) return q;
    const Values<T, kLanes> w = weights(i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) q.z[k] *= w.z[k];
    return q;
  }

  __device__ double dloss() const {
    const double scale = args_.mean_scale != nullptr ? *args_.mean_scale : args_.dloss_scale;
    if (!args_.dloss) return scale;
    return scale *
           element_at<double>(row_data(args_.space, args_.dloss, row_), args_.dloss.dtype, 0);
  }

  const RowArgs& args_;
  std::int64_t row_;
  Logits logits_;
  Slope<T> slope_;
  MaskRow probabilities_, weights_;
  std::int64_t target_ = -1;  // of indices: the class,
  bool ignored_ = false;
  T weight_ = 0;                 // its weight,
  T hit_ = minus_infinity<T>();  // and where the loss is asked for its logit
};

}  // namespace onepass::ops::loss
