// What a fold folds with: an associative operator and its identity. Collectives take one of these.
#pragma once

#include "core/state.hpp"

namespace onepass {

struct Merge {
  using Value = State<float>;
  ONEPASS_HD static constexpr Value identity() { return onepass::identity<float>(); }
  ONEPASS_HD Value operator()(Value a, Value b) const { return merge(a, b); }
};

struct Largest {
  using Value = float;
  ONEPASS_HD static constexpr Value identity() { return minus_infinity<float>(); }
  ONEPASS_HD Value operator()(Value a, Value b) const { return std::fmax(a, b); }  // drops a NaN
};

struct Add {
  using Value = float;
  ONEPASS_HD static constexpr Value identity() { return 0; }
  ONEPASS_HD Value operator()(Value a, Value b) const { return a + b; }
};

}  // namespace onepass
