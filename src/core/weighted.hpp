// A State with a payload that is rescaled like its sum. Attention folds these.
#pragma once

#include "core/state.hpp"

namespace onepass {

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
  const Weighted<T, Payload> high = ordered ? a : b;  // a reference would spill to memory on a GPU
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
