// The simplest state: a sum. The backward ops fold a Sum where the forward ops fold a State.
#pragma once

#include "core/annotate.hpp"

namespace onepass {

template <class T>
struct Sum {
  T value;
};

template <class T>
ONEPASS_HD constexpr Sum<T> merge(Sum<T> a, Sum<T> b) {
  return {a.value + b.value};
}

}  // namespace onepass
