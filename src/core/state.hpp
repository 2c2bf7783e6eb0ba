// The one idea: the softmax of a row is a fold with an associative merge.
//
// A State stands for any set of logits: m is their maximum, d the sum of exp(x − m). Sets that do
// not overlap merge in any order and any grouping, so the same three lines climb from SIMD lanes
// to threads, warps, blocks, clusters, grids and ranks. No other file writes this rescaling.
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

// What to subtract if m is the maximum: 0 for −inf, because −inf − −inf is NaN and every logit of
// such a set weighs 0 anyway.
template <class T>
ONEPASS_HD constexpr T shift(T m) {
  return m == minus_infinity<T>() ? T(0) : m;
}

// The set of one logit: d is 1, but 0 for −inf, which makes the set as good as empty, and NaN for
// +inf.
template <class T>
ONEPASS_HD inline State<T> leaf(T x) {
  return {x, exponential(x - shift(x))};
}

// The factor that rescales the sum of a state to a larger maximum.
template <class T>
ONEPASS_HD inline T rescale(T high, T low) {
  return exponential_once(low - shift(high));
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

// weight() in two steps, for many elements of one row: exp(x − from) · factor. `from` is the
// maximum that x was exponentiated against, a tile's or the row's own.
template <class T>
ONEPASS_HD inline T factor(State<T> row, T from) {
  return row.d == T(0) ? T(0) : exponential(from - row.m) / row.d;
}

// log Σ exp; −inf for the empty set, +inf if an element is +inf (d is then NaN).
template <class T>
ONEPASS_HD inline T logsumexp(State<T> row) {
  if (row.m == -minus_infinity<T>()) return row.m;
  return row.d == T(0) ? minus_infinity<T>() : row.m + std::log(row.d);
}

}  // namespace onepass
