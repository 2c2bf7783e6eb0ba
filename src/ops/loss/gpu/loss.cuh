// Cross-entropy of one row, forward and backward: the state of the row and one logit; in a row with
// any options also what label smoothing needs.
#pragma once

#include "merge/operators.hpp"
#include "merge/running.cuh"
#include "merge/warp.cuh"
#include "ops/loss/classes.hpp"
#include "rows/gpu/logits.cuh"

namespace onepass::ops::loss {

template <class T>
struct MergeClasses {
  using Value = Classes<T>;
  ONEPASS_HD static constexpr Value identity() { return {onepass::identity<T>(), T(0), T(0)}; }
  ONEPASS_HD Value operator()(const Value& a, const Value& b) const { return merge(a, b); }
};

template <class T>
__device__ inline Classes<T> group_fold(const Classes<T>& mine, MergeClasses<T>, int lanes) {
  return {onepass::group_fold(mine.state, Merge<T>(), lanes),
          onepass::group_fold(mine.sum, Add<T>(), lanes),
          onepass::group_fold(mine.count, Add<T>(), lanes)};
}

template <class T, int R>
__device__ inline void group_fold(Classes<T> (&mine)[R], MergeClasses<T> join, int lanes) {
#pragma unroll
  for (int r = 0; r < R; ++r) mine[r] = group_fold(mine[r], join, lanes);
}

// dz/dx where z = x.
template <class T>
struct NoSlope {
  __device__ NoSlope(const FlatArgs&, std::int64_t) {}
};

template <class In, class Out>
class LossRow {
 public:
  using Logits = LogitsFor<In, Out>;
  using Args = typename Logits::Args;
  using T = typename Logits::T;
  using Stored = typename Logits::Stored;
  using Held = typename Logits::Held;
  using Edge = typename Logits::Edge;
  static constexpr bool kSmooths = std::is_void_v<Out>;
  static constexpr bool kFolds = true;
  using Join = std::conditional_t<kSmooths, MergeClasses<T>, Merge<T>>;
  using Partial = typename Join::Value;

  __device__ LossRow(const Args& args, std::int64_t row)
      : args_(args), row_(row), logits_(args, row), slope_(args, row) {
    const void* target = row_of(args, args.target, row);
    target_ = args.target.dtype == DType::i32 ? *static_cast<const std::int32_t*>(target)
                                              : *static_cast<const std::int64_t*>(target);
    ignored_ = target_ == args.ignore_index;
    // Before anybody writes: dx may lie over x.
    if (args.loss && is_class()) hit_ = logits_.at(target_);
  }

  __device__ int packs() const { return logits_.packs(); }

  // An ignored row is read all the same: to look at the target first would be to wait for it.
  __device__ Stored fetch(int i) const { return logits_.fetch(i); }
  __device__ void ask(int i, Stored* slot) const { logits_.ask(i, slot); }
  __device__ static Stored nothing() { return Logits::nothing(); }
  __device__ int edges() const { return logits_.edges(); }
  __device__ Edge fetch_edge(int e) const { return logits_.fetch_edge(e); }
  __device__ static Partial fold_edge(Edge edge) {
    const State<T> state = leaf(Logits::value(edge));
    if constexpr (kSmooths) {
      return {state, T(0), T(0)};  // never: such a row has no edges
    } else {
      return state;
    }
  }
  __device__ Held hold(const Stored& stored, int i, int end) const {
    return logits_.hold(stored, i, end);
  }

  template <int P>
  __device__ Partial fold(const Held (&held)[P], int live) const {
    if (knows_lse() && smoothing() == T(0)) return Join::identity();
    const T m = Logits::largest(held);
    const T s = shift(m);
    State<T> state{m, T(0)};
    T sum = 0;
    T count = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p >= live) break;
      T z[kLanes];
      T weights[kLanes];
      Logits::values(held[p], z);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        weights[k] = exponential(z[k] - s);
        if constexpr (kSmooths) {
          const bool possible = z[k] != minus_infinity<T>();
          sum += possible ? z[k] * kPart : T(0);
          count += possible ? T(1) : T(0);
        }
      }
      state.d += pairwise_sum(weights);
    }
    if constexpr (kSmooths) {
      return {state, sum, count};
    } else {
      return state;
    }
  }

  __device__ bool writes() const { return args_.op == Op::cross_entropy_backward; }

  // dx = (exp(z − shift) · factor − smooth − [target] · hit) · slope
  struct Scale {
    T shift, factor, smooth, hit;
    bool zero;       // ignored, or fully masked
    int pack, lane;  // where the target is; no pack where it is an edge or no class
    StoreFor<In, Out> store;
  };

  __device__ Scale scale(const Partial& total) const {
    State<T> state = state_of(total);
    if (knows_lse()) {
      const T lse = element_at<T>(row_of(args_, args_.lse, row_), args_.lse.dtype, 0);
      state = lse == minus_infinity<T>() ? identity<T>() : leaf(lse);
    }
    T smooth = 0;
    if constexpr (kSmooths) smooth = smoothing() > T(0) ? smoothing() / total.count : T(0);
    const std::int64_t target = target_ - logits_.column(0);
    const bool in_pack = is_class() && target >= 0;
    const T z_slope = T(1) + T(2) * static_cast<T>(args_.z_loss) * logsumexp(state);
    return {.shift = state.m,
            .factor = z_slope / state.d * dloss(),
            .smooth = smooth * dloss(),
            .hit = (T(1) - smoothing()) * dloss(),
            .zero = ignored_ || state.d == T(0),
            .pack = in_pack ? static_cast<int>(target / kLanes) : -1,
            .lane = static_cast<int>(target % kLanes),
            .store = logits_.template store<Out>(row_of(args_, args_.out, row_), args_.out)};
  }

  __device__ void finish(int i, const Held& held, const Scale& scale) const {
    T g[kLanes];
    Logits::values(held, g);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) g[k] = gradient(g[k], scale);
    T z[kLanes];
    Logits::values(held, z);
    if (i == scale.pack) {
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        if (k == scale.lane) g[k] -= hit(z[k], scale);
      }
    }
    if constexpr (kSmooths) slope_.weigh_possible(z, logits_.column(i), g);
    if (scale.zero) {
#pragma unroll
      for (T& value : g) value = T(0);
    }
    scale.store.put(i, g);
  }

  __device__ void finish_edge(int e, Edge edge, const Scale& scale) const {
    const std::int64_t c = logits_.edge_column(e);
    const T z = Logits::value(edge);
    const T g = gradient(z, scale) - (c == target_ ? hit(z, scale) : T(0));
    scale.store.put_at(c, scale.zero ? T(0) : g);
  }

  __device__ void conclude(const Partial& total) const {
    if (writes() && !args_.loss) return;
    const auto& to = writes() ? args_.loss : args_.out;
    const T lse = logsumexp(state_of(total));
    if (args_.lse) write_like(row_of(args_, args_.lse, row_), args_.lse.dtype, 0, lse);
    const double loss = ignored_ ? 0 : loss_of(total, lse);
    if (args_.row_losses != nullptr) {
      args_.row_losses[row_ - args_.first_row] = loss;
    } else {
      write_like(row_of(args_, to, row_), to.dtype, 0, loss);
    }
  }

 private:
  static constexpr int kLanes = Logits::kLanes;
  using SlopeOf = std::conditional_t<std::is_void_v<Out>, Slope<T>, NoSlope<T>>;
  // The largest logits would add up to inf: so small a part of each does not.
  static constexpr T kPart = T(0x1p-40);

  __device__ bool knows_lse() const { return writes() && args_.lse && !args_.loss; }
  __device__ bool is_class() const { return target_ >= 0 && target_ < cols_of(args_); }

  // The gradient of z: of a class that is not the target, and what the target has less.
  __device__ static T gradient(T z, const Scale& scale) {
    const T g = exponential(z - scale.shift) * scale.factor;
    if constexpr (kSmooths) return z == minus_infinity<T>() ? T(0) : g - scale.smooth;
    return g;
  }
  __device__ static T hit(T z, const Scale& scale) {
    return z == minus_infinity<T>() ? T(0) : scale.hit;
  }

  __device__ T smoothing() const {
    if constexpr (kSmooths) return static_cast<T>(args_.label_smoothing);
    return T(0);
  }

  __device__ static State<T> state_of(const State<T>& total) { return total; }
  __device__ static State<T> state_of(const Classes<T>& total) { return total.state; }

  __device__ T dloss() const {
    const double scale = args_.mean_scale != nullptr ? *args_.mean_scale : args_.dloss_scale;
    if (!args_.dloss) return static_cast<T>(scale);
    return static_cast<T>(
        element_at<double>(row_of(args_, args_.dloss, row_), args_.dloss.dtype, 0) * scale);
  }

  __device__ T target_logit() const { return args_.loss ? hit_ : logits_.at(target_); }

  // Relative to m, so that a large offset common to the row costs no digits. A double: a row's loss
  // may be past the largest float where the mean of all is not. A target that is no class, which
  // only the kernel can see, makes it NaN.
  __device__ double loss_of(const Partial& total, T lse) const {
    if (!is_class()) return std::numeric_limits<double>::quiet_NaN();
    const State<T> state = state_of(total);
    if (state.d == T(0)) return -minus_infinity<double>();  // every class has probability 0
    const T log_d = log(state.d);
    // Halves: a distance from m may be past the largest T.
    constexpr T kHalf = T(0.5);
    const T half_m = state.m * kHalf;
    const T half_log = log_d * kHalf;
    const auto share = [&](T part, T half_z) {
      return 2 * static_cast<double>(part) * static_cast<double>((half_m - half_z) + half_log);
    };
    // With a smoothing of 1 the target has no say, not even where it is hidden.
    double loss = smoothing() < T(1) ? share(T(1) - smoothing(), target_logit() * kHalf) : 0;
    if constexpr (kSmooths) {
      if (smoothing() > T(0)) {
        loss += share(smoothing(), total.sum / total.count / kPart * kHalf);
      }
    }
    const double square = static_cast<double>(lse) * static_cast<double>(lse);
    return args_.z_loss == 0 ? loss : loss + args_.z_loss * square;
  }

  const Args& args_;
  std::int64_t row_;
  Logits logits_;
  SlopeOf slope_;
  std::int64_t target_;
  bool ignored_;
  T hit_ = 0;  // the target's logit, where the loss is written beside dx
};

struct LossRows {
  static constexpr bool kWidens = false;
  template <class In, class Out>
  using Row = LossRow<In, Out>;
};

}  // namespace onepass::ops::loss
