// The state of a row whose classes have weights, or probabilities as targets, and the loss that
// comes of it. On a CPU and on a GPU.
//
// Class c has the share a = w · q: its weight, and its probability, or 1 where it is the target.
// With s of the labels smoothed over the classes with z > −inf
//
//     loss = (1 − s) · Σ a · (lse − z) + s / count · Σ w · (lse − z) + z_loss · lse²
//     dz   = exp(z − lse) · (A + 2 · z_loss · lse) − ((1 − s) · a + s / count · w), A the sum of
//          what is subtracted
//
// A class whose share is 0 adds nothing, even where its z is −inf; one with a share there makes
// the loss infinite.
#pragma once

#include "core/long_state.hpp"

namespace onepass::ops::loss {

// Sums are float64: of all the classes of a long row some are tiny beside the others. They are of z
// − m, so that a large offset common to the row costs no digits; and of its half, which is finite
// where the two are. The state is a State, or where tiles are merged on a CPU a LongState.
template <class RowState>
struct Shares {
  RowState state;
  double count;           // classes with z > −inf
  double weight, spread;  // Σ w, Σ w · (z − m) / 2 over them
  double share, drawn;    // Σ a, Σ a · (z − m) / 2 over all with a ≠ 0
};

// What is subtracted from z / 2.
template <class T>
ONEPASS_HD constexpr T half_shift(T m) {
  return shift(m) / T(2);
}

// The same classes with sums relative to another m.
template <class T, class RowState>
ONEPASS_HD inline Shares<RowState> relative_to(T m, const Shares<RowState>& shares) {
  const double by =
      static_cast<double>(half_shift(shares.state.m)) - static_cast<double>(half_shift(m));
  Shares<RowState> moved = shares;
  moved.spread += shares.weight * by;
  moved.drawn += shares.share * by;
  return moved;
}

// Two sets of classes whose sums are relative to the m of `state`, that of both.
template <class RowState>
ONEPASS_HD inline Shares<RowState> sum_of(const RowState& state, const Shares<RowState>& a,
                                          const Shares<RowState>& b) {
  return {state,
          a.count + b.count,
          a.weight + b.weight,
          a.spread + b.spread,
          a.share + b.share,
          a.drawn + b.drawn};
}

template <class RowState>
ONEPASS_HD inline Shares<RowState> merge(const Shares<RowState>& a, const Shares<RowState>& b) {
  const RowState state = onepass::merge(a.state, b.state);
  return sum_of(state, relative_to(state.m, a), relative_to(state.m, b));
}

// Gives the target, whose logit is z, its share.
template <class RowState, class T>
ONEPASS_HD inline Shares<RowState> with_target(Shares<RowState> shares, T weight, T z) {
  const double half = static_cast<double>(z) / 2 - static_cast<double>(half_shift(shares.state.m));
  shares.share = static_cast<double>(weight);
  shares.drawn = weight == T(0) ? 0.0 : shares.share * half;
  return shares;
}

// Σ exp(z − m).
template <class T>
ONEPASS_HD inline double weights_of(const State<T>& state) {
  return static_cast<double>(state.d);
}
inline double weights_of(const LongState& state) { return state.d + state.lost; }

// What each class has of the labels: own · a + smooth · w.
struct Labels {
  double own, smooth;
  double sum;  // over all classes
};

template <class RowState>
ONEPASS_HD inline Labels labels(const Shares<RowState>& row, double smoothing) {
  const double own = 1 - smoothing;
  const double smooth = smoothing > 0 && row.count > 0 ? smoothing / row.count : 0;
  return {own, smooth, own * row.share + smooth * row.weight};
}

template <class RowState>
ONEPASS_HD inline double loss_of(const Shares<RowState>& row, double smoothing, double z_loss,
                                 double lse) {
  const Labels of = labels(row, smoothing);
  const double d = weights_of(row.state);
  double loss = 0;
  if (d == 0) {  // every class has probability 0
    if (of.own != 0) loss -= 2 * row.drawn;
    if (smoothing > 0) loss = std::numeric_limits<double>::infinity();
  } else {
    const double log_d = std::log(d);
    if (of.own != 0) loss += of.own * (row.share * log_d - 2 * row.drawn);
    if (of.smooth != 0) loss += of.smooth * (row.weight * log_d - 2 * row.spread);
  }
  return z_loss == 0 ? loss : loss + z_loss * lse * lse;
}

}  // namespace onepass::ops::loss
