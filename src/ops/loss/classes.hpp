// The state of a row with what label smoothing needs.
#pragma once

#include "core/state.hpp"

namespace onepass::ops::loss {

template <class T, class RowState = State<T>>
struct Classes {
  RowState state;
  T sum;    // Σ z over the classes with z > −inf
  T count;  // how many there are
};

template <class T, class RowState>
ONEPASS_HD inline Classes<T, RowState> merge(const Classes<T, RowState>& a,
                                             const Classes<T, RowState>& b) {
  return {onepass::merge(a.state, b.state), a.sum + b.sum, a.count + b.count};
}

}  // namespace onepass::ops::loss
