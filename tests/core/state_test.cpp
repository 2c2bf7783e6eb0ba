// The laws of the one idea: whatever tree of merges a row is folded with, the state is the row's.
#include "core/weighted.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <type_traits>
#include <vector>

namespace onepass {

template <class T>
void showValue(const State<T>& s, std::ostream& out) {  // for a counterexample
  out << "{" << s.m << ", " << s.d << "}";
}

namespace {

template <class T>
constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kHuge = std::is_same_v<T, float> ? T(3e38) : T(1.7e308);

template <class T>
bool same_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
}

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

// The state of some row, as often as not one with a maximum near the others': only then does each
// side count in a merge.
template <class T>
rc::Gen<State<T>> state() {
  const auto near =
      rc::gen::map(rc::gen::pair(rc::gen::inRange(-3000, 3001), rc::gen::inRange(1000, 100000)),
                   [](std::pair<int, int> k) {
                     return State<T>{T(k.first) / 1000, T(k.second) / 1000};
                   });
  return rc::gen::oneOf(near, rc::gen::map(row<T>(), [](const auto& x) { return fold(x); }));
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

template <class T>
class StateTest : public testing::Test {};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(StateTest, Types);

template <class Property>
void holds(Property property) {
  rc::detail::checkGTest(property);
}

TYPED_TEST(StateTest, IdentityAndLeafAreWhatTheySay) {
  using T = TypeParam;
  EXPECT_EQ(identity<T>().m, -kInf<T>);
  EXPECT_EQ(identity<T>().d, T(0));
  EXPECT_EQ(weight(identity<T>(), T(1)), T(0));
  EXPECT_EQ(logsumexp(identity<T>()), -kInf<T>);
  EXPECT_EQ(leaf(T(3)).m, T(3));
  EXPECT_EQ(weight(leaf(T(3)), T(3)), T(1));
  EXPECT_EQ(logsumexp(leaf(T(3))), T(3));
}

TYPED_TEST(StateTest, TwoElementsByHand) {
  using T = TypeParam;
  const State<T> s = merge(leaf(T(0)), leaf(std::log(T(3))));  // weights 1 : 3
  EXPECT_NEAR(weight(s, T(0)), 0.25, 4 * kEpsilon<T>);
  EXPECT_NEAR(weight(s, std::log(T(3))), 0.75, 4 * kEpsilon<T>);
  EXPECT_NEAR(logsumexp(s), std::log(T(4)), 4 * kEpsilon<T>);
}

TYPED_TEST(StateTest, MergeCommutesBitForBit) {
  using T = TypeParam;
  holds([] {
    const State<T> a = *state<T>();
    const State<T> b = *state<T>();
    const State<T> ab = merge(a, b);
    const State<T> ba = merge(b, a);
    RC_ASSERT(ab.m == ba.m);
    RC_ASSERT(same_bits(ab.d, ba.d));
  });
}

TYPED_TEST(StateTest, MergeAssociates) {
  using T = TypeParam;
  holds([] {
    const State<T> a = *state<T>();
    const State<T> b = *state<T>();
    const State<T> c = *state<T>();
    expect_same_set(merge(merge(a, b), c), merge(a, merge(b, c)), 2);
  });
}

TYPED_TEST(StateTest, IdentityChangesNothingOnEitherSide) {
  using T = TypeParam;
  holds([] {
    const State<T> a = *state<T>();
    for (const State<T>& same : {merge(a, identity<T>()), merge(identity<T>(), a)}) {
      RC_ASSERT(same_bits(same.m, a.m));
      RC_ASSERT(same_bits(same.d, a.d));
    }
  });
}

TYPED_TEST(StateTest, AnyCutsAndAnyTreeGiveTheWholeRow) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const std::vector<T> x = *row<T>();
    std::vector<State<T>> pieces;
    std::mt19937_64 random(seed);
    for (auto begin = x.begin(); begin != x.end();) {
      const auto end =
          begin + 1 +
          static_cast<std::ptrdiff_t>(random() % static_cast<std::uint64_t>(x.end() - begin));
      pieces.push_back(fold(std::vector<T>(begin, end)));
      begin = end;
      if (random() % 4 == 0) pieces.push_back(identity<T>());  // a thread without work
    }
    expect_same_set(merge_anyhow(pieces, seed), fold(x), x.size());
  });
}

TYPED_TEST(StateTest, EveryTreeOfLeavesSumsWhatThereIs) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const std::vector<T> x = *row<T>();
    std::vector<State<T>> leaves;
    for (const T v : x) leaves.push_back(merge(identity<T>(), leaf(v)));
    const State<T> s = merge_anyhow(leaves, seed);
    const long double exact = exact_sum(x);
    RC_ASSERT(s.m == *std::max_element(x.begin(), x.end()));
    RC_ASSERT(std::abs(s.d - exact) <= tolerance<T>(x.size()) * exact);
  });
}

TYPED_TEST(StateTest, LogsumexpAgainstLongDouble) {
  using T = TypeParam;
  holds([] {
    const std::vector<T> x = *row<T>();
    const long double m = *std::max_element(x.begin(), x.end());
    const long double exact = m + std::log(exact_sum(x));
    RC_ASSERT(std::abs(logsumexp(fold(x)) - exact) <=
              tolerance<T>(x.size()) + 2 * kEpsilon<T> * std::abs(exact));
  });
}

TYPED_TEST(StateTest, WeightsSumToOneAndAreTheSoftmax) {
  using T = TypeParam;
  holds([] {
    const std::vector<T> x = *row<T>();
    const State<T> s = fold(x);
    const long double m = s.m;
    const long double exact = exact_sum(x);
    long double total = 0;
    for (const T v : x) {
      const long double w = weight(s, v);
      RC_ASSERT(w >= 0);
      RC_ASSERT(std::abs(w - std::exp(v - m) / exact) <= tolerance<T>(x.size()));
      total += w;
    }
    RC_ASSERT(std::abs(total - 1) <= tolerance<T>(x.size()));
  });
}

// Multiples of 1/8 below 2^15: neither x + shift nor x − m rounds, so the bits must not change.
TYPED_TEST(StateTest, AShiftOfTheRowMovesOnlyTheMaximum) {
  using T = TypeParam;
  holds([] {
    const auto eighths = rc::gen::map(rc::gen::inRange(-800, 801), [](int k) { return T(k) / 8; });
    const std::vector<T> x = *rc::gen::nonEmpty(rc::gen::container<std::vector<T>>(eighths));
    const T shift = *rc::gen::map(rc::gen::inRange(-80000, 80001), [](int k) { return T(k) / 8; });
    std::vector<T> shifted = x;
    for (T& v : shifted) v += shift;
    const State<T> a = fold(x);
    const State<T> b = fold(shifted);
    RC_ASSERT(b.m == a.m + shift);
    RC_ASSERT(same_bits(a.d, b.d));
    for (std::size_t i = 0; i < x.size(); ++i) {
      RC_ASSERT(same_bits(weight(a, x[i]), weight(b, shifted[i])));
    }
  });
}

TYPED_TEST(StateTest, NanStaysNanFromEveryPositionThroughEveryTree) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    std::vector<T> x =
        *rc::gen::nonEmpty(rc::gen::resize(20, rc::gen::container<std::vector<T>>(logit<T>())));
    for (std::size_t position = 0; position < x.size(); ++position) {
      std::vector<T> poisoned = x;
      poisoned[position] = kNan<T>;
      std::vector<State<T>> leaves;
      for (const T v : poisoned) leaves.push_back(leaf(v));
      for (const State<T>& s : {fold(poisoned), merge_anyhow(leaves, seed)}) {
        for (const T v : poisoned) RC_ASSERT(std::isnan(weight(s, v)));
        RC_ASSERT(std::isnan(weight(s, T(0))));
        RC_ASSERT(std::isnan(logsumexp(s)));
      }
    }
  });
}

TYPED_TEST(StateTest, OnlyMinusInfIsTheEmptySet) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const auto count = *rc::gen::inRange<std::size_t>(1, 30);
    const std::vector<T> x(count, -kInf<T>);
    std::vector<State<T>> parts;
    for (const T v : x) parts.push_back(merge(identity<T>(), leaf(v)));
    for (const State<T>& s : {fold(x), merge_anyhow(parts, seed)}) {
      RC_ASSERT(s.m == -kInf<T>);
      RC_ASSERT(s.d == T(0));
      RC_ASSERT(weight(s, -kInf<T>) == T(0));
      RC_ASSERT(logsumexp(s) == -kInf<T>);
    }
    const State<T> a = fold(*row<T>());  // and so it merges like the identity
    const State<T> same = merge(fold(x), a);
    RC_ASSERT(same_bits(same.m, a.m) && same_bits(same.d, a.d));
  });
}

TYPED_TEST(StateTest, MinusInfWeighsNothingAmongOthers) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    std::vector<T> x = *row<T>();
    const State<T> without = fold(x);
    const auto extra = *rc::gen::inRange<std::size_t>(1, 10);
    x.insert(x.end(), extra, -kInf<T>);
    std::shuffle(x.begin(), x.end(), std::mt19937_64(seed));
    const State<T> s = fold(x);
    expect_same_set(s, without, x.size());
    RC_ASSERT(weight(s, -kInf<T>) == T(0));
  });
}

TYPED_TEST(StateTest, PlusInfGivesNanWeights) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    std::vector<T> x = *row<T>();
    x.insert(x.begin() + static_cast<std::ptrdiff_t>(seed % (x.size() + 1)), kInf<T>);
    const State<T> s = fold(x);
    RC_ASSERT(s.m == kInf<T>);  // what tells it from a NaN: its lse is +inf
    for (const T v : x) RC_ASSERT(std::isnan(weight(s, v)));
  });
  EXPECT_TRUE(std::isnan(weight(leaf(kInf<T>), kInf<T>)));
}

TYPED_TEST(StateTest, FiniteExtremesDoNotOverflow) {
  using T = TypeParam;
  for (const std::vector<T>& x : {std::vector<T>{kHuge<T>, -kHuge<T>}, {-kHuge<T>, kHuge<T>}}) {
    const State<T> s = fold(x);
    EXPECT_EQ(weight(s, kHuge<T>), T(1));
    EXPECT_EQ(weight(s, -kHuge<T>), T(0));
    EXPECT_EQ(logsumexp(s), kHuge<T>);
  }
  const State<T> low = fold(std::vector<T>(4, -kHuge<T>));
  EXPECT_EQ(weight(low, -kHuge<T>), T(0.25));
  EXPECT_EQ(logsumexp(low), -kHuge<T>);
  const T lowest = std::numeric_limits<T>::lowest();
  EXPECT_EQ(weight(fold(std::vector<T>{lowest, -kInf<T>}), lowest), T(1));
}

// A payload of two numbers, as attention's rows of V are many.
template <class T>
struct Pair {
  T first, second;
  friend Pair operator*(Pair p, T factor) { return {p.first * factor, p.second * factor}; }
  friend Pair operator+(Pair a, Pair b) { return {a.first + b.first, a.second + b.second}; }
};

template <class T>
using WeightedPair = Weighted<T, Pair<T>>;

TYPED_TEST(StateTest, WeightedMeanIsTheSoftmaxSumForEveryTree) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const std::vector<T> x = *row<T>();
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<T> value(-4, 4);
    const long double m = *std::max_element(x.begin(), x.end());
    const long double d = exact_sum(x);
    std::vector<WeightedPair<T>> parts = {{identity<T>(), {}}};  // the empty set is always one
    long double first = 0;
    long double second = 0;
    for (const T v : x) {
      const Pair<T> payload{value(random), value(random)};
      parts.push_back(leaf(v, payload));
      first += std::exp(v - m) / d * payload.first;
      second += std::exp(v - m) / d * payload.second;
    }
    const WeightedPair<T> all = merge_anyhow(parts, seed);
    RC_ASSERT(std::abs(mean(all).first - first) <= 4 * tolerance<T>(x.size()));
    RC_ASSERT(std::abs(mean(all).second - second) <= 4 * tolerance<T>(x.size()));
    expect_same_set(all.state, fold(x), x.size());
  });
}

TYPED_TEST(StateTest, WeightedMeanOfNothingIsZero) {
  using T = TypeParam;
  const Weighted<T, T> none{identity<T>(), T(0)};
  const Weighted<T, T> hidden = merge(leaf(-kInf<T>, T(7)), leaf(-kInf<T>, T(9)));
  EXPECT_EQ(mean(none), T(0));
  EXPECT_EQ(mean(merge(none, none)), T(0));
  EXPECT_EQ(mean(hidden), T(0));
  EXPECT_EQ(mean(merge(hidden, leaf(T(2), T(5)))), T(5));
  EXPECT_EQ(mean(merge(leaf(T(2), T(5)), none)), T(5));
}

TYPED_TEST(StateTest, WeightedANanComesBeforeAnInfinityOnEitherSide) {
  using T = TypeParam;
  const Weighted<T, T> nan{{kNan<T>, T(1)}, T(1)};
  const Weighted<T, T> infinite = leaf(kInf<T>, T(1));
  EXPECT_TRUE(std::isnan(logsumexp(merge(nan, infinite).state)));
  EXPECT_TRUE(std::isnan(logsumexp(merge(infinite, nan).state)));
}

TYPED_TEST(StateTest, WeightedMeanKeepsANan) {
  using T = TypeParam;
  const Weighted<T, T> nan = leaf(kNan<T>, T(1));
  const Weighted<T, T> one = leaf(T(0), T(1));
  EXPECT_TRUE(std::isnan(mean(merge(nan, one))));
  EXPECT_TRUE(std::isnan(mean(merge(one, nan))));
  EXPECT_TRUE(std::isnan(mean(merge(merge(one, nan), one))));
}

}  // namespace
}  // namespace onepass
