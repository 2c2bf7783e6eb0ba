// Rows as models have them, their states, and any tree of merges.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/state.hpp"

namespace onepass {

template <class T>
void showValue(const State<T>& s, std::ostream& out) {  // for a counterexample
  out << "{" << s.m << ", " << s.d << "}";
}

namespace test {

using FloatAndDouble = testing::Types<float, double>;

template <class T>
constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kHuge = std::is_same_v<T, float> ? T(3e38) : T(1.7e308);

// Logits as models have them, ties, and now and then what breaks naive code.
template <class T>
rc::Gen<T> logit() {
  const auto eighths = rc::gen::map(rc::gen::inRange(-400, 401), [](int k) { return T(k) / 8; });
  return rc::gen::weightedOneOf<T>(
      {{8, eighths},
       {4, rc::gen::map(rc::gen::inRange(-1000000, 1000001), [](int k) { return T(k) / 30000; })},
       {1, rc::gen::element(T(0), T(-0.0), -kInf<T>, T(1e4), T(-1e4))},
       {1, rc::gen::element(kHuge<T>, -kHuge<T>, std::numeric_limits<T>::min())}});
}

// A row with at least one logit that counts.
template <class T>
rc::Gen<std::vector<T>> row() {
  return rc::gen::suchThat(
      rc::gen::resize(40, rc::gen::container<std::vector<T>>(logit<T>())), [](const auto& x) {
        return std::any_of(x.begin(), x.end(), [](T v) { return v > -kInf<T>; });
      });
}

template <class T>
State<T> fold(const std::vector<T>& x) {
  State<T> state = identity<T>();
  for (const T v : x) state = merge(state, leaf(v));
  return state;
}

// Merges any two until one is left: any tree, any order.
template <class Partial>
Partial merge_anyhow(std::vector<Partial> parts, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  while (parts.size() > 1) {
    std::swap(parts.back(), parts[random() % parts.size()]);
    const Partial last = parts.back();
    parts.pop_back();
    Partial& other = parts[random() % parts.size()];
    other = random() % 2 == 0 ? merge(other, last) : merge(last, other);
  }
  return parts.front();
}

// Σ exp(x − max) without an order to speak of.
template <class T>
long double exact_sum(const std::vector<T>& x) {
  const long double m = *std::max_element(x.begin(), x.end());
  long double sum = 0;
  for (const T v : x) sum += std::exp(v - m);
  return sum;
}

// Each merge rounds a few times; an exponent's rounding error shrinks with the
// weight it belongs to.
template <class T>
long double tolerance(std::size_t merges) {
  return 4 * static_cast<long double>(merges + 2) * kEpsilon<T>;
}

template <class T>
void expect_same_set(State<T> a, State<T> b, std::size_t merges) {
  RC_ASSERT(a.m == b.m);
  RC_ASSERT(std::abs(a.d - b.d) <= tolerance<T>(merges) * b.d);
}

template <class Property>
void holds(Property property) {
  rc::detail::checkGTest(property);
}

}  // namespace test
}  // namespace onepass
