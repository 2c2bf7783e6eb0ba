// The operators of folds: each is associative and has an identity. Collectives take one of these.
#pragma once

#include "core/state.hpp"

namespace onepass {

template <class T = float>
struct Merge {
  using Value = State<T>;
  ONEPASS_HD static constexpr Value identity() { return onepass::identity<T>(); }
  ONEPASS_HD Value operator()(Value a, Value b) const { return merge(a, b); }
};

template <class T = float>
struct Largest {
  using Value = T;
  ONEPASS_HD static constexpr Value identity() { return minus_infinity<T>(); }
  ONEPASS_HD Value operator()(Value a, Value b) const { return std::fmax(a, b); }  // drops a NaN
};

template <class T = float>
struct Add {
  using Value = T;
  ONEPASS_HD static constexpr Value identity() { return 0; }
  ONEPASS_HD Value operator()(Value a, Value b) const { return a + b; }
};

}  // namespace onepass
