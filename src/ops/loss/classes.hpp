// The state of a row with what label smoothing needs.
#pragma once

#include "core/state.hpp"

namespace onepass::ops::loss {

template <class T>
struct Classes {
  State<T> state;
  T sum;    // Σ z over the classes with z > −inf
  T count;  // how many there are
};

template <class T>
ONEPASS_HD inline Classes<T> merge(const Classes<T>& a, const Classes<T>& b) {
  return {onepass::merge(a.state, b.state), a.sum + b.sum, a.count + b.count};
}

}  // namespace onepass::ops::loss
