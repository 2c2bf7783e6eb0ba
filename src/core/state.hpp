// The one idea: the softmax of a row is a fold with an associative merge.
//
// A State stands for any set of logits: m is their maximum, d the sum of exp(x − m). Sets that do
// not overlap merge in any order and any grouping, so the same three lines climb from SIMD lanes
// to threads, warps, blocks, clusters, grids and ranks. Nobody writes this rescaling elsewhere.
#pragma once

#include <cmath>
#include <limits>

#include "core/annotate.hpp"
#include "core/exponential.hpp"

namespace onepass {

template <class T>
struct State {
  T m;  // maximum; −inf for the empty set
  T d;  // Σ exp(x − m); 0 for the empty set
};

template <class T>
ONEPASS_HD constexpr T minus_infinity() {
  return -std::numeric_limits<T>::infinity();
}

template <class T>
ONEPASS_HD constexpr State<T> identity() {
  return {minus_infinity<T>(), T(0)};
}

// What is subtracted where m is the maximum. From −inf nothing can be (−inf − −inf is NaN), and
// nothing need be: all there is is empty.
template <class T>
ONEPASS_HD constexpr T shift(T m) {
  return m == minus_infinity<T>() ? T(0) : m;
}

// The set of one logit: d is 1, but 0 for −inf, which is as good as nothing, and NaN for +inf.
template <class T>
ONEPASS_HD inline State<T> leaf(T x) {
  return {x, exponential(x - shift(x))};
}

// The exponential by which a state shrinks when it is brought to a larger maximum.
template <class T>
ONEPASS_HD inline T rescale(T high, T low) {
  return exponential(low - shift(high));
}

// The larger maximum first, so that a compiler that fuses the product and the sum cannot tell the
// two sides apart: merge(a, b) and merge(b, a) are the same bits. A NaN in m counts as the largest.
template <class T>
ONEPASS_HD inline State<T> merge(State<T> a, State<T> b) {
  const bool ordered = a.m > b.m || a.m != a.m;
  const State<T> high = ordered ? a : b;
  const State<T> low = ordered ? b : a;
  return {high.m, high.d + low.d * rescale(high.m, low.m)};
}

// exp(x) / Σ exp. The guard asks d == 0, not d > 0, so that a NaN stays a NaN.
template <class T>
ONEPASS_HD inline T weight(State<T> row, T x) {
  return row.d == T(0) ? T(0) : exponential(x - row.m) / row.d;
}

// The same for many elements of one row, in two steps: exp(x − from) · factor. `from` is any
// maximum that x was exponentiated against, a tile's or the row's own.
template <class T>
ONEPASS_HD inline T factor(State<T> row, T from) {
  return row.d == T(0) ? T(0) : exponential(from - row.m) / row.d;
}

// log Σ exp; −inf for the empty set, +inf where an element is (d is NaN then).
template <class T>
ONEPASS_HD inline T logsumexp(State<T> row) {
  if (row.m == -minus_infinity<T>()) return row.m;
  return row.d == T(0) ? minus_infinity<T>() : row.m + std::log(row.d);
}

// The state of a long row, merged from many. A sum of equal terms rounds the same way at every step, and a sum of 1 takes
// any number of terms below half its ulp without a trace: so the sum is a double, and what its additions round off is
// kept beside it. m is not quite the maximum: it follows only when that leaves it by more than kSlack, as a maximum that
// creeps would have the sum rescaled, and rounded, at every step.
struct LongState {
  static constexpr double kSlack = 1;

  double m = minus_infinity<double>();
  double d = 0;
  double lost = 0;

  LongState() = default;
  LongState(double maximum, double sum, double rounded_off = 0)
      : m(maximum), d(sum), lost(rounded_off) {}
  template <class T>
  LongState(State<T> s) : m(s.m), d(s.d) {}
};

template <class T>
inline State<T> narrow(const LongState& row) {
  return {static_cast<T>(row.m), static_cast<T>(row.d + row.lost)};
}

inline LongState merge(const LongState& a, const LongState& b) {
  const bool ordered = a.m + LongState::kSlack >= b.m || a.m != a.m;
  const LongState& high = ordered ? a : b;
  const LongState& low = ordered ? b : a;
  const double by = high.m == low.m ? 1 : rescale(high.m, low.m);
  const double term = low.d * by;
  const double sum = high.d + term;
  const double kept = sum - term;  // of high.d; Knuth's two-sum, exact whichever is larger
  return {high.m, sum, high.lost + low.lost * by + ((high.d - kept) + (term - (sum - kept)))};
}

inline double logsumexp(const LongState& row) { return logsumexp(narrow<double>(row)); }

// A state that carries a sum weighted by the same exponentials: attention's Σ exp(x − m)·v.
// Payload needs `payload * T` and `payload + payload`.
template <class T, class Payload>
struct Weighted {
  State<T> state;
  Payload sum;
};

template <class T, class Payload>
ONEPASS_HD inline Weighted<T, Payload> leaf(T x, Payload value) {
  const State<T> state = leaf(x);
  return {state, value * state.d};
}

template <class T, class Payload>
ONEPASS_HD inline Weighted<T, Payload> merge(const Weighted<T, Payload>& a,
                                             const Weighted<T, Payload>& b) {
  const bool ordered = a.state.m > b.state.m || a.state.m != a.state.m;
  const Weighted<T, Payload> high = ordered ? a : b;  // not by reference: on a GPU that is memory
  const Weighted<T, Payload> low = ordered ? b : a;
  const T by = rescale(high.state.m, low.state.m);
  return {{high.state.m, high.state.d + low.state.d * by}, high.sum + low.sum * by};
}

// The weighted mean Σ softmax(x)·v; zero for the empty set.
template <class T, class Payload>
ONEPASS_HD inline Payload mean(const Weighted<T, Payload>& row) {
  return row.sum * (row.state.d == T(0) ? T(0) : T(1) / row.state.d);
}

}  // namespace onepass
